"""No request waits for another: one falls back and is answered while the other is at work."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, Session, SqliteCheckpointer
from echelons.delegation.request import DelegationResponse
from echelons.runtime.run_events import RunEvent, RunEventKind
from echelons.testing import Call, ScriptedModel, delegate, delegate_many, report

MEND = Call("call_subordinate", {"message": "Repair the bicycle"})
WAIT = delegate("garden", "Watch the turtle")
CALLS = [[WAIT, MEND], [delegate_many(WAIT, MEND)]]
SECONDS = 120
"""How long the slow one waits at most: for ever, if one request held up the other."""


class Latch:
    """Holds the slow one up until the other request is answered.

    Attributes:
        order: Who of the third level has come to an end so far.
    """

    def __init__(self) -> None:
        self._answered = threading.Event()
        self.order: list[str] = []

    def turtle(self, task: str) -> str:
        """Wait for the others."""
        assert self._answered.wait(SECONDS), "the other request was held up"
        self.order.append("turtle")
        return "slow and steady"

    def see(self, event: RunEvent) -> None:
        """Let the slow one go when the fallback of the other is done and written down."""
        # What the head is told; the levels below it have been told before.
        if event.kind is RunEventKind.RESPONSE and event.path in ("head/workshop", "head/shed"):
            self.order.append(f"{event.data['agent']} {event.data['status']}")
            if event.data["final"]:
                self._answered.set()


def session_of(latch: Latch, calls: list[Call], saver: SqliteCheckpointer) -> Session:
    """Return a session of three levels; for the bicycle there are two, in two branches."""
    model = ScriptedModel(
        {
            "head": [calls, "All done."],
            "garden": [delegate("turtle", "Go"), "It is there."],
            "mechanic": [report("unable", "", reason="no tools")],
            "tinker": ["As new."],
        }
    )
    mechanic = Agent("mechanic", capabilities={"repair bicycle": 0.9})
    tinker = Agent("tinker", capabilities={"repair bicycle": 0.7})
    below = [
        Agent("garden", "Watches", subordinates=[latch.turtle]),
        Agent("workshop", subordinates=[mechanic]),
        Agent("shed", subordinates=[tinker]),
    ]
    return Session(Agent("head", model=model, subordinates=below), saver)


def check(latch: Latch, session: Session) -> None:
    """Check that the fallback was over before the slow one was, and both are heard."""
    assert latch.order == ["mechanic unable", "tinker fulfilled", "turtle"]
    messages = session.thread_store.get(session.thread_id).messages
    answers = [DelegationResponse.load(m.artifact) for m in messages if isinstance(m, ToolMessage)]
    assert all(each.status == "fulfilled" for each in answers)
    said = "\n".join(str(each.result) for each in answers)
    assert "It is there." in said
    assert "As new." in said


@pytest.mark.parametrize("calls", CALLS, ids=["two calls", "one call of two"])
def test_a_fallback_is_over_while_a_slow_request_beside_it_runs_in_threads(
    calls: list[Any], saver: SqliteCheckpointer
) -> None:
    latch = Latch()
    session = session_of(latch, calls, saver)

    run = session.send("go")
    for event in run:
        latch.see(event)

    assert run.result().text == "All done."
    check(latch, session)


@pytest.mark.parametrize("calls", CALLS, ids=["two calls", "one call of two"])
async def test_a_fallback_is_over_while_a_slow_request_beside_it_runs_in_an_event_loop(
    calls: list[Any], saver: SqliteCheckpointer
) -> None:
    latch = Latch()
    session = session_of(latch, calls, saver)

    run = await session.asend("go")
    async for event in run:
        latch.see(event)

    assert (await run.result()).text == "All done."
    check(latch, session)
