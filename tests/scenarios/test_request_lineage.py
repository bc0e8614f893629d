"""A request knows the whole way from the root to its agent, and where it comes from."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from echelons import Agent, DelegationPolicy, Session, SqliteCheckpointer, get_request
from echelons.delegation import DelegationRequest
from echelons.testing import Call, ScriptedModel, delegate
from tests.scenarios.conftest import World

NAMES = ("head", "mid", "low", "leaf")


def line(seen: list[DelegationRequest], *policies: DelegationPolicy | None) -> Agent:
    """Return a line of four agents, each of which notes its request and asks the next."""

    def note() -> str:
        """Note the request."""
        seen.append(get_request())
        return "noted"

    steps: dict[str, Any] = {
        name: [[Call("note"), delegate(below, f"task for {below}")], f"{name} done"]
        for name, below in pairwise(NAMES)
    }
    model = ScriptedModel({**steps, "leaf": [Call("note"), "leaf done"]})
    agent: Agent | None = None
    for name, policy in zip(NAMES[::-1], [*policies, None, None, None, None][3::-1], strict=True):
        below = [agent] if agent else []
        agent = Agent(name, model=model, tools=[note], subordinates=below, delegation=policy)
    assert agent
    return agent


@pytest.mark.parametrize("kind", ["session", "compile"])
def test_request_has_the_path_and_the_ids_above_it(world: World, kind: str) -> None:
    seen: list[DelegationRequest] = []
    tree = line(seen)
    if kind == "session":
        with Session(tree, ":memory:") as session:
            world.send(session, "go", turn_id="t1")
    else:
        world.invoke(tree.compile(), {"messages": [("user", "go")]})

    by_agent = {request.current: request for request in seen}
    head, mid, low, leaf = map(by_agent.__getitem__, NAMES)
    assert [request.path.parts for request in (head, mid, low, leaf)] == [
        NAMES[: place + 1] for place in range(4)
    ]
    assert [request.hops for request in (head, mid, low, leaf)] == [0, 1, 2, 3]
    assert {request.root_id for request in by_agent.values()} == {head.id}
    assert [mid.parent_id, low.parent_id, leaf.parent_id] == [head.id, mid.id, low.id]
    assert {request.initiator for request in by_agent.values()} == {"user"}
    assert (leaf.origin, leaf.path_from_origin) == ("low", "low/leaf")
    assert head.id == "t1" or kind == "compile"


def test_routed_request_has_the_agents_that_passed_it_on(world: World) -> None:
    seen: list[DelegationRequest] = []

    def cook(task: str) -> str:
        seen.append(get_request())
        return "pizza"

    cook.__name__ = "cook"
    wing = Agent("wing", subordinates=[Agent("floor", subordinates=[cook])])
    head = Agent("head", subordinates=[wing, Agent("other", capabilities={"tax": 1.0})])
    model = ScriptedModel(
        {"top": [delegate("head", "go"), "done"], "head": [delegate("", "cook"), "done"]}
    )
    with Session(Agent("top", model=model, subordinates=[head]), ":memory:") as session:
        world.send(session, "go")
        [answer] = session.trace().subordinates[0].subordinates[0].requests

    assert seen[0].path == "top/head/wing/floor/cook"
    assert answer.response
    assert answer.response.path == "head/wing/floor/cook"


@pytest.mark.parametrize(
    ("policies", "reached"),
    [
        ((DelegationPolicy(max_hops=2),), ["head", "mid", "low"]),
        ((None, DelegationPolicy(max_hops=2)), ["head", "mid", "low"]),
        ((DelegationPolicy(max_hops=1), DelegationPolicy(max_hops=9)), ["head", "mid"]),
        ((DelegationPolicy(max_hops=3),), list(NAMES)),
    ],
)
def test_hops_count_from_the_root_against_the_smallest_policy(
    world: World, saver: SqliteCheckpointer, policies: Any, reached: list[str]
) -> None:
    seen: list[DelegationRequest] = []
    with Session(line(seen, *policies), saver) as session:
        world.send(session, "go")
        rows = saver.conn.execute("SELECT reason FROM delegations WHERE status = 'unable'")
        reasons = [reason for (reason,) in rows]

    assert [request.current for request in seen] == reached
    limit = len(reached) - 1
    refused = f"hops: it would pass {limit + 1} agents, and may pass {limit}"
    assert [reason.startswith(refused) for reason in reasons] == [True] * (len(reached) < 4)
