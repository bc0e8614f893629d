"""An expedition of four levels in which two leaves ask a human; run as a process of its own (see
``forks``).

``main(DATABASE, LOG, WORLD, STEPS)`` takes one step after the other (a JSON list
of ``["send", task]``, ``["answer", {path: value}]``, ``["say", {id: value}]``, ``["resume"]``)
and returns what was asked after each and all that is stored at the end. Models and
tools write a line to LOG each time they have done something, so that no process can do it again
unseen.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from langgraph.types import interrupt

from echelons import Agent, Question, Result, Session
from echelons.identity.lineage import REQUESTS_KEY
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.scripts import as_message
from echelons.testing.steps import as_reply

SCRIPTS: Mapping[str, Sequence[Any]] = {
    "head": [
        [
            delegate("north", "find a pass"),
            Call("note", {"text": "set out"}),
            delegate("south", "find a harbour"),
        ],
        Call("note", {"text": "came back"}),
        "The expedition is over.",
    ],
    "north": [delegate("camp", "look for the pass"), "North is done."],
    "camp": [[delegate("scout", "which pass?"), delegate("cook", "supper")], "Camp is done."],
    "scout": [
        [Call("ask", {"question": "Which pass?"}), Call("note", {"text": "scouted"})],
        "The scout knows.",
    ],
    "cook": [Call("note", {"text": "cooked"}), "Supper is ready."],
    "south": [delegate("harbour", "look for the harbour"), "South is done."],
    "harbour": [delegate("pilot", "which harbour?"), "Harbour is done."],
    "pilot": [
        Call("note", {"text": "sailed"}),
        Call("ask", {"question": "Which harbour?"}),
        "Aye.",
    ],
}


class Log:
    """Lines in a file that outlives every process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def script(
    agent: str, log: Log, scripts: Mapping[str, Sequence[Any]]
) -> Callable[[Sequence[BaseMessage]], AIMessage]:
    """Return an agent's script with ids that are the same in every run."""

    def next_step(messages: Sequence[BaseMessage]) -> AIMessage:
        place = sum(isinstance(message, AIMessage) for message in messages)
        log.write(f"model {agent} {place}")
        reply = as_reply(scripts[agent][place])
        assert reply is not None
        return as_message(reply, len(messages)).model_copy(update={"id": f"{agent}-{place}"})

    return next_step


def tools(log: Log) -> tuple[BaseTool, BaseTool]:
    """Return the tools, each of which says what it has done."""

    @tool
    def note(text: str) -> str:
        """Write a note."""
        log.write(f"tool note {text}")
        return f"noted: {text}"

    @tool
    def ask(question: str) -> str:
        """Ask the human."""
        answer = interrupt(question)
        log.write(f"tool ask {question} {answer}")
        return f"{question} {answer}"

    return note, ask


def expedition(log: Log) -> Agent:
    """Return the tree."""
    note, ask = tools(log)
    model = ScriptedModel({agent: script(agent, log, SCRIPTS) for agent in SCRIPTS})
    scout = Agent("scout", tools=[note, ask])
    camp = Agent("camp", subordinates=[scout, Agent("cook", tools=[note])])
    harbour = Agent("harbour", subordinates=[Agent("pilot", tools=[note, ask])])
    branches = [Agent("north", subordinates=[camp]), Agent("south", subordinates=[harbour])]
    return Agent("head", model=model, tools=[note], subordinates=branches)


def by_id(asked: Sequence[Question], answers: Mapping[str, str]) -> dict[str, str]:
    """Return the answers to what the agents at these paths ask, by the questions' ids."""
    paths = {str(each.path): each.id for each in asked}
    return {paths[path]: answer for path, answer in answers.items()}


def take(session: Session, step: Sequence[Any]) -> Result:
    """Take one step in this thread."""
    match step:
        case ["send", task]:
            return session.send(task).result()
        case ["answer", answers]:
            return session.answer(by_id(session.inbox(), answers)).result()
        case ["say", answers]:
            return session.answer(answers).result()
        case _:
            return session.resume().result()


async def atake(session: Session, step: Sequence[Any]) -> Result:
    """Take one step in an event loop."""
    match step:
        case ["send", task]:
            return await (await session.asend(task)).result()
        case ["answer", answers]:
            return await (await session.aanswer(by_id(await session.ainbox(), answers))).result()
        case ["say", answers]:
            return await (await session.aanswer(answers)).result()
        case _:
            return await (await session.aresume()).result()


def stored(session: Session) -> dict[str, Any]:
    """Return everything that is stored of the thread."""
    store = session.thread_store
    links = store.verify(session.thread_id)
    threads = [session.thread_id, *(link.sub_agent_thread_id for link in links)]
    return {
        # Without the answers: each of the killed runs asks about the calls that were cut short.
        "trace": session.trace().with_user_actions(()).text,
        "links": {f"{link.agent}": str(link.state) for link in links},
        "threads": {
            thread.path: [plain(message) for message in thread.messages]
            for thread in (store.get(each, session.thread_id) for each in threads)
        },
    }


def plain(message: BaseMessage) -> dict[str, Any]:
    """Return a message as JSON, without what is different in every run.

    The ids of tools' and humans' messages are random, and by when a subordinate has to answer
    depends on when it is asked.
    """
    metadata = {key: each for key, each in message.response_metadata.items() if key != REQUESTS_KEY}
    return {**message.model_dump(mode="json", exclude={"id"}), "response_metadata": metadata}


def main(database: str, log: str, world: str, steps: str) -> dict[str, Any]:
    """Take the steps and return what came of them."""
    shown: list[Any] = []
    with Session(expedition(Log(Path(log))), database, thread="expedition") as session:
        for step in json.loads(steps):
            result = asyncio.run(atake(session, step)) if world == "async" else take(session, step)
            asked = [[each.path, each.value] for each in session.inbox()]
            shown.append({"text": result.text, "finished": result.finished, "asked": asked})
        return {"steps": shown, **stored(session)}
