"""Trees whose lowest agents ask their superiors, who answer, combine or pass their questions on.

``main`` does one thing to a tree on a database, for the tests in processes of their own.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons import Agent, Result, Session
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import get_last, is_own_notice, read_results, without_notices

QUESTION = re.compile(r'asks: "(.*?)"(?: Choices: .*)? To answer, .* answers="(\w+)"')
LEVELS = ("head", "lead", "mid", "low", "base")


class Counsel:
    """So many branches of a depth, at the end of each an agent that asks its superior.

    They begin at the root. The root's answer is made of what the lowest agents have heard.

    Args:
        depth: Levels, the root's included.
        width: Branches; each asks one question, ``q1`` and so on.
        answered_by: Name of an agent that answers every question itself, with ``by`` and its name.
        combines: Whether the root asks the user one question for all.
    """

    def __init__(
        self, depth: int, width: int, answered_by: str = "", combines: bool = False
    ) -> None:
        self.questions = [f"q{place}" for place in range(1, width + 1)]
        self._answered_by = answered_by
        self._combines = combines
        scripts: dict[str, Any] = {}
        below: list[Agent] = []
        for question in self.questions if depth > 1 else []:
            names = [f"{question}-{level}" for level in LEVELS[1:depth]]
            scripts[names[-1]] = partial(_ask_once, question)
            branch = Agent(names[-1])
            for name in reversed(names[:-1]):
                scripts[name] = partial(self._lead, name, [branch.name])
                branch = Agent(name, subordinates=[branch])
            below.append(branch)
        scripts["head"] = partial(self._lead, "head", [each.name for each in below])
        self.model = ScriptedModel(scripts)
        self.agent = Agent("head", model=self.model, subordinates=below)

    def count_calls(self) -> dict[str, int]:
        """Return how often the model of each agent was called."""
        return dict(Counter(str(each.agent) for each in self.model.calls))

    def _lead(self, name: str, below: Sequence[str], messages: Sequence[BaseMessage]) -> Any:
        last = get_last(messages)
        if isinstance(last, HumanMessage):
            if _has_asked(messages):
                return _pass_down(messages, json.loads(str(last.text)))
            if not below:
                return [Call("ask_superior", {"question": each}) for each in self.questions]
            return [delegate(each, "ask") for each in below]
        said = [str(each.text) for each in _list_results(messages)]
        if last.name == "ask_superior":
            given = self._share_answers(messages)
            if below:
                return _pass_down(messages, given)
            return " | ".join(f"{question} heard {each}" for question, each in given.items())
        asked = [question for question, _ in QUESTION.findall(read_results(messages))]
        if asked and name == self._answered_by:
            return _pass_down(messages, dict.fromkeys(asked, f"by {name}"))
        if asked and self._combines and name == "head":
            return Call("ask_superior", {"question": " and ".join(asked)})
        if asked:
            return [Call("ask_superior", {"question": each}) for each in asked]
        return " | ".join(said)

    def _share_answers(self, messages: Sequence[BaseMessage]) -> dict[str, str]:
        """Return the user's answer to each question."""
        said = {each.tool_call_id: str(each.text) for each in _list_results(messages)}
        reply = next(each for each in reversed(messages) if isinstance(each, AIMessage))
        given: dict[str, str] = {}
        for call in reply.tool_calls:
            for question in call["args"]["question"].split(" and "):
                given[question] = said[call["id"] or ""]
        return given


def _ask_once(question: str, messages: Sequence[BaseMessage]) -> Any:
    if not _has_asked(messages):
        return Call("ask_superior", {"question": question})
    return f"{question} heard {json.loads(str(messages[-1].text))[question]}"


def _has_asked(messages: Sequence[BaseMessage]) -> bool:
    replies = [each for each in messages if isinstance(each, AIMessage)]
    return any(call["name"] == "ask_superior" for each in replies[-1:] for call in each.tool_calls)


def _list_results(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if is_own_notice(message):
            continue
        if not isinstance(message, ToolMessage):
            break
        results.insert(0, without_notices(message))
    return results


def _pass_down(messages: Sequence[BaseMessage], given: Mapping[str, str]) -> list[Call]:
    """Return the calls that answer the questions of each subordinate together."""
    shares: dict[str, dict[str, str]] = {}
    for message in messages:
        if not isinstance(message, AIMessage):
            for question, asking in QUESTION.findall(str(message.text)):
                if question in given:
                    shares.setdefault(asking, {})[question] = given[question]
    return [
        Call("call_subordinate", {"message": json.dumps(share), "answers": asking})
        for asking, share in shares.items()
    ]


def main(database: str, tree: str, action: str, argument: str = "null") -> dict[str, Any]:
    """Do one thing to a tree, whose arguments are JSON, and tell what came of it.

    The action `leave` sends a task, and leaves the run when the argument's agent has answered.
    """
    counsel = Counsel(**json.loads(tree))
    given = json.loads(argument)
    actions: dict[str, Callable[[Session], Result]] = {
        "send": lambda session: session.send("ask").result(),
        "leave": lambda session: _leave(session, given),
        "resume": lambda session: session.resume().result(),
        "answer": lambda session: session.answer(given).result(),
    }
    with Session(counsel.agent, database) as session:
        result = actions[action](session)
        asked = {each.id: each.value for each in result.questions}
    calls = counsel.count_calls()
    return {"status": result.status, "text": result.text, "asked": asked, "calls": calls}


def _leave(session: Session, agent: str) -> Result:
    with session.send("ask") as run:
        for event in run:
            if event.kind == "response" and event.data["agent"] == agent:
                break
    return run.result()
