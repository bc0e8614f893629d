"""Decisions for a thread: who finds them again, and who does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from echelons.checkpoints.coordination.decisions import STANDING, LedgerDecisions
from echelons.checkpoints.ledger import build_key, get_ledger
from echelons.delegation.approvals import Decision, GuardedCall
from echelons.errors import LedgerDamaged
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY, CHECKPOINTER_KEY

Saver = BaseCheckpointSaver[Any]
DECISIONS = LedgerDecisions()
APPROVE = Decision("approve", scope="thread")


def call(path: str = "head", kind: Any = "tool", **arguments: Any) -> GuardedCall:
    return GuardedCall("1", path, kind, "mail", arguments or {"to": "bob"}, "c1")


def at(saver: Saver | None, checkpoint: str) -> dict[str, Any]:
    """Return the config of a task that a root runs at a checkpoint."""
    return {
        "configurable": {
            "thread_id": "1",
            CHECKPOINTER_KEY: saver,
            CHECKPOINT_MAP_KEY: {"": checkpoint},
        }
    }


class Line:
    """A thread of LangGraph, and the checkpoints of it."""

    def __init__(self, saver: Saver) -> None:
        builder = StateGraph(MessagesState)
        builder.add_node("say", lambda state: {"messages": ["said"]})
        builder.add_edge(START, "say")
        builder.add_edge("say", END)
        self.graph = builder.compile(checkpointer=saver)

    def run(self, after: str = "") -> str:
        """Run a turn, and return the checkpoint at its end."""
        config: Any = {"configurable": {"thread_id": "1"}}
        if after:
            config["configurable"] |= {"checkpoint_id": after, "checkpoint_ns": ""}
        self.graph.invoke({"messages": [HumanMessage("go")]}, config)
        latest = self.graph.get_state({"configurable": {"thread_id": "1"}})
        return str(latest.config["configurable"]["checkpoint_id"])


def find(saver: Saver, checkpoint: str, asked: GuardedCall | None = None) -> Decision | None:
    found = DECISIONS.find(asked or call(), at(saver, checkpoint))
    assert found == asyncio.run(DECISIONS.afind(asked or call(), at(saver, checkpoint)))
    return found


def test_a_decision_holds_where_it_was_given_and_after_it(any_saver: Saver) -> None:
    line = Line(any_saver)
    first, second, third = line.run(), line.run(), line.run()

    DECISIONS.keep(call(), APPROVE, at(any_saver, second))

    assert [find(any_saver, each) for each in (first, second, third)] == [None, APPROVE, APPROVE]


def test_a_fork_finds_neither_an_earlier_decision_nor_a_later_one(any_saver: Saver) -> None:
    line = Line(any_saver)
    first, second, third = line.run(), line.run(), line.run()
    DECISIONS.keep(call(), APPROVE, at(any_saver, second))

    forks = [line.run(after=each) for each in (first, second)]

    assert [find(any_saver, each) for each in forks] == [None, None]
    DECISIONS.keep(call(), Decision("reject", scope="thread"), at(any_saver, forks[0]))
    assert find(any_saver, forks[0]) == Decision("reject", scope="thread")
    assert find(any_saver, third) == APPROVE


@pytest.mark.parametrize(
    "other",
    [call("head/a"), call(to="eve"), call(to="bob", more=1), call(kind="subordinate")],
    ids=["path", "argument", "arguments", "kind"],
)
def test_another_call_finds_nothing(any_saver: Saver, other: GuardedCall) -> None:
    end = Line(any_saver).run()
    DECISIONS.keep(call(), APPROVE, at(any_saver, end))

    assert find(any_saver, end, other) is None


def test_a_decision_is_kept_once_and_the_last_one_counts(any_saver: Saver) -> None:
    end = Line(any_saver).run()
    for decision in (APPROVE, APPROVE, Decision("reject", scope="thread")):
        DECISIONS.keep(call(), decision, at(any_saver, end))

    found = get_ledger(any_saver).get_record(STANDING, build_key("1", "approval", call().digest))

    assert found
    assert [each.decision["type"] for each in found.value] == ["reject"]
    assert found.version == 2


def test_nothing_is_kept_without_a_saver() -> None:
    DECISIONS.keep(call(), APPROVE, at(None, ""))

    assert DECISIONS.find(call(), at(None, "")) is None
    assert asyncio.run(DECISIONS.afind(call(), at(None, ""))) is None
    assert asyncio.run(DECISIONS.arun(lambda: 7, at(None, ""))) == 7


def test_a_damaged_decision_is_named(any_saver: Saver) -> None:
    end = Line(any_saver).run()
    key = build_key("1", "approval", call().digest)
    stored = [{"decision": {"type": "perhaps"}, "thread": "1", "after": end}]
    get_ledger(any_saver).compare_and_set(key, None, stored)

    with pytest.raises(LedgerDamaged, match="approval"):
        DECISIONS.find(call(), at(any_saver, end))
