"""A request passes no more agents than the policy of its sender allows, at every depth."""

from __future__ import annotations

from typing import Any

import pytest

from echelons import Agent, DelegationPolicy, Session, SqliteCheckpointer
from echelons.testing import ScriptedModel, delegate
from tests.scenarios.conftest import World

REFUSED = "hops: it would pass 3 agents, and may pass 2"


def _ask_then_tell(messages: Any) -> Any:
    last = messages[-1]
    return f"heard {last.text}" if last.type == "tool" else delegate("", "cooking dinner")


def tree(max_hops: int | None, **near: Any) -> Agent:
    """Return a tree with the only cook at level 4, and perhaps a nearer one."""
    cook = Agent("cook", capabilities={"cooking dinner": 1.0})
    wing = Agent("wing", subordinates=[Agent("floor", subordinates=[cook])])
    model = ScriptedModel(
        {
            "head": _ask_then_tell,
            "cook": ["pizza"],
            "snacks": ["toast"],
        }
    )
    others = [Agent("snacks", capabilities=near)] if near else []
    policy = DelegationPolicy(max_hops=max_hops, timeout=None)
    return Agent("head", model=model, delegation=policy, subordinates=[wing, *others])


@pytest.mark.parametrize("limit", [None, 3, 4])
def test_an_agent_within_the_hops_is_asked(world: World, limit: int | None) -> None:
    with Session(tree(limit), ":memory:") as session:
        assert world.send(session, "go").text == "heard pizza"


def test_agent_beyond_the_hops_is_not_asked_and_superior_reads_why(world: World) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(tree(2), saver)
        text = world.send(session, "go").text
        [row] = saver.conn.execute("SELECT status, reason, max_hops FROM delegations")

    assert REFUSED in text
    assert "max_hops in the DelegationPolicy" in text
    assert (row[0], row[2]) == ("unable", 2)
    assert row[1].startswith(REFUSED)


def test_the_next_best_within_the_hops_is_asked_instead(world: World) -> None:
    with Session(tree(2, **{"cooking": 0.6}), ":memory:") as session:
        assert world.send(session, "go").text == "heard toast"


def test_an_agent_below_has_the_limit_of_its_own_policy(world: World) -> None:
    inner = tree(1, **{"cooking": 0.6})
    model = ScriptedModel({"top": [delegate("head", "dinner"), "done"]})
    with Session(Agent("top", model=model, subordinates=[inner]), ":memory:") as session:
        world.send(session, "go")
        trace = session.trace()

    hops = {each.agent: each.requests[0].sent.max_hops for each in trace.walk() if each.requests}
    assert hops["head"] == 10
    assert {hops["wing"], hops["snacks"]} == {1}
