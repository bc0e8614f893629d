"""Thirty agents with open questions and unread mail, run as a process of its own (see ``forks``).

``main(DATABASE, LOG, WORLD, WHAT)``: with ``held`` as WHAT, the tree is paused in the middle of
its first turn, and its process kills itself; with ``free`` nothing happens. A process that finds an
unfinished turn goes on with it, answers what is open, and lets one agent read its answer in a
second turn. Each call of a model or tool writes a line to LOG before it does anything.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import StructuredTool

from echelons import Agent, Permissions, Result, Session, SqliteCheckpointer
from echelons.checkpoints.coordination.mailbox import MAILBOX
from echelons.checkpoints.ledger import build_key
from echelons.testing import Call, ScriptedModel, delegate
from tests.scenarios.drivers.expedition import Log

CROWD = 30
ANSWERS = {"Where?": "here", "How deep?": "a metre"}
"""What the user answers; the turn does not wait for the second."""


class Crowd:
    """A root and its thirty agents.

    The first asks the user, the second a question that nobody waits for. The third waits until
    both are open, then writes to its superior, and may pause the tree. All others dig meanwhile.

    Args:
        log: Each call of a model or tool writes a line here.
        is_held: Whether the third pauses the tree.
    """

    def __init__(self, log: Log, is_held: bool) -> None:
        self._log = log
        self._is_held = is_held
        self.is_over = Event()
        self.session: Session
        names = [f"m{number}" for number in range(CROWD)]
        steps: dict[str, list[Any]] = {name: [Call("dig"), f"{name} is done"] for name in names}
        steps["m0"] = [Call("ask_user", {"question": "Where?"}), "m0 is done"]
        steps["m1"] = [Call("ask_later", {"question": "How deep?"}), *steps["m1"], "m1 is told"]
        steps["m2"] = [Call("look"), "m2 is done"]
        work = [delegate(name, "dig") for name in names]
        steps["head"] = [work, "all are done", delegate("m1", "again"), "over"]
        tools = [
            StructuredTool.from_function(self._dig, self._adig, "dig", "Dig."),
            StructuredTool.from_function(self._look, self._alook, "look", "Look."),
        ]
        permissions = Permissions(contact_user=True)
        members = [Agent(name, tools=tools, permissions=permissions) for name in names]
        model = ScriptedModel({name: self._script(name, steps[name]) for name in steps})
        self.agent = Agent("head", model=model, subordinates=members)

    def _script(self, name: str, steps: list[Any]) -> Any:
        def step(messages: Sequence[BaseMessage]) -> Any:
            place = sum(isinstance(each, AIMessage) for each in messages)
            self._log.write(f"model {name} {place}")
            if (name, place) == ("m2", 1):
                self.session.send_message("head", "All of them dig.")
                if self._is_held:
                    self.session.pause()
                self.is_over.set()
            return steps[place]

        return step

    def _dig(self) -> str:
        self._log.write("tool")
        self.is_over.wait()
        return "dug"

    async def _adig(self) -> str:
        self._log.write("tool")
        while not self.is_over.is_set():
            await asyncio.sleep(0.01)
        return "dug"

    def _look(self) -> str:
        while len(self.session.inbox()) < len(ANSWERS):
            time.sleep(0.01)
        return "looked"

    async def _alook(self) -> str:
        while len(await self.session.ainbox()) < len(ANSWERS):
            await asyncio.sleep(0.01)
        return "looked"


def run(session: Session, world: str, method: str, *arguments: Any) -> Result:
    """Call a method of a session, or its asynchronous version, and wait for the result."""
    if world == "sync":
        result: Result = getattr(session, method)(*arguments).result()
        return result

    async def arun() -> Result:
        result: Result = await (await getattr(session, f"a{method}")(*arguments)).result()
        return result

    return asyncio.run(arun())


def told(session: Session) -> dict[str, list[str]]:
    """Return what every agent's conversation says, by path."""
    return {
        str(session.thread_store.get(each.thread_id).path): [
            f"{message.type}: {message.text}"
            for message in session.thread_store.get(each.thread_id).messages
        ]
        for each in session.trace().walk()
    }


def main(database: str, log: str, world: str, what: str) -> dict[str, Any]:
    """Bring both turns to their end, and return all conversations, and what was open at first."""
    crowd = Crowd(Log(Path(log)), what == "held")
    with SqliteCheckpointer(database) as saver:
        session = crowd.session = Session(crowd.agent, saver, thread="t")
        opened = sorted(str(each.value) for each in session.inbox())
        box = saver.ledger.get_record(MAILBOX, build_key(session.thread_id, MAILBOX.name, "head"))
        unread = box.value.unread if box else 0
        if opened:
            crowd.is_over.set()
            run(session, world, "resume")
        else:
            for each in crowd.agent.subordinates:
                session.send_message(f"head/{each.name}", "Dig well.")
            run(session, world, "send", "go")
            if what == "held":
                os.kill(os.getpid(), signal.SIGKILL)
        answers = {each.id: ANSWERS[str(each.value)] for each in session.inbox()}
        texts = [
            run(session, world, "answer", answers).text,
            run(session, world, "send", "on").text,
        ]
        return {"end": [texts, told(session)], "opened": opened, "unread": unread}
