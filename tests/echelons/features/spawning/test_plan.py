"""What an agent may spawn, and which of those that it has made are there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent, Spawn
from echelons.delegation.spawned_agents import (
    NEVER_BEGUN,
    AgentSpecification,
    SpawnedAgent,
    check_spawnable,
)
from echelons.errors import SpawnRefused
from echelons.features.spawning.plan import SpawnPlan, SpawnRules, SpawnSubordinateArgs
from echelons.guards.limits import MAX_DEPTH
from echelons.identity.lineage import Identity
from echelons.identity.thread_history import Head

PROFILES = check_spawnable(
    {"clerk": Agent("clerk"), "team": Agent("team", subordinates=[Agent("aide")])}
)
STATUSES = ["fulfilled", "partial", "unable", "needs_input", NEVER_BEGUN]


def plan(
    allowed: Spawn | None = None, heads: dict[str, Head] | None = None, **rules: Any
) -> SpawnPlan:
    """Return the plan of a head that works on a request."""
    path, depth = rules.pop("path", ("head",)), rules.pop("max_depth", MAX_DEPTH)
    identity = Identity("head", path, "thread", "tree", request_id="now", turn="turn")
    tools = rules.pop("tools", ())
    made = SpawnRules(allowed or Spawn(), **rules)
    return SpawnPlan(made, heads or {}, identity, PROFILES, max_depth=depth, tools=tools)


def spawn(given: SpawnPlan, call: str = "call", **arguments: Any) -> AgentSpecification:
    wanted = SpawnSubordinateArgs(**{"role": "scout", "message": "look", **arguments})
    return given.spawn(call, "message", wanted)


def made(number: int, *statuses: str, **fields: Any) -> dict[str, Head]:
    """Return the heads of an agent that was made earlier, one a status."""
    spec = replace(spawn(plan(), f"call {number}"), **{"segment": "then", **fields})
    heads = {
        f"{number}/{place}": Head(agent=spec.name, spawned=spec.stored(), status=status)
        for place, status in enumerate(statuses)
    }
    return heads or {f"{number}": Head(agent=spec.name, spawned=spec.stored())}


def test_what_it_gets_is_what_its_superior_is_and_has() -> None:
    given = plan(Spawn(tools=("search", "gone")), tools=("search", "write"), model="Chat")

    spec = spawn(given)

    assert (spec.kind, spec.segment, spec.tools) == ("mortal", "now", ("search",))
    assert (spec.model, spec.levels, spec.keep, spec.profile) == ("Chat", 1, False, "")
    assert given.new == {"call": spec}
    assert spawn(given, "other").name != spec.name
    assert spawn(plan(Spawn(tools=("search",)), tools=("search",)), tools=[]).tools == ()


def test_a_profile_is_noted_with_its_digest() -> None:
    spec = spawn(plan(Spawn(profiles=("clerk",))), profile="clerk")

    assert (spec.profile, spec.profile_hash) == ("clerk", PROFILES["clerk"].digest)
    assert (spec.tools, spec.model) == ((), "")


@pytest.mark.parametrize(
    ("allowed", "arguments", "why"),
    [
        ({"kinds": ("drone",)}, {"kind": "mortal"}, "'mortal' is none that you may make"),
        ({}, {"kind": "drone", "keep": True}, "keep: a drone ends"),
        ({"kinds": ("drone",)}, {"keep": True}, "keep: a drone ends"),
        ({}, {"contact_user": True}, "contact_user: you may not ask"),
        ({}, {"profile": "clerk"}, "you may not give the profile 'clerk', but: none"),
        ({"profiles": ("gone",)}, {"profile": "gone"}, "no agent called 'gone' is declared"),
        ({"profiles": ("clerk",)}, {"profile": "clerk", "tools": []}, "a profile has its own"),
        ({"tools": ("write",)}, {"tools": ["search"]}, "'search' is none that you may give"),
        ({"tools": ("gone",)}, {"tools": ["gone"]}, "'gone' is none that you may give, but: none"),
    ],
)
def test_what_is_beyond_its_grant_is_refused_with_why(
    allowed: dict[str, Any], arguments: dict[str, Any], why: str
) -> None:
    given = plan(Spawn(**allowed), tools=("search", "write"))

    with pytest.raises(SpawnRefused, match=why):
        spawn(given, **arguments)

    assert given.new == {}


def test_no_more_are_there_at_once_than_allowed() -> None:
    given = plan(Spawn(at_once=2), made(1, "fulfilled", keep=True) | made(2, "unable"))

    spawn(given)
    with pytest.raises(SpawnRefused, match="2 agents of yours are there, and at most 2"):
        spawn(given, "other")


def test_all_that_it_has_ever_made_are_counted() -> None:
    given = plan(Spawn(total=3), made(1, "fulfilled") | made(2, "fulfilled", kind="drone"))

    spawn(given)
    assert list(given.living) == []
    with pytest.raises(SpawnRefused, match="you have spawned 3 agents, and may spawn 3 in all"):
        spawn(given, "other")


@pytest.mark.parametrize(
    ("path", "profile", "kind", "fits"),
    [
        (("head",), "", "mortal", True),
        (("head", "mid"), "", "mortal", True),
        (("head", "mid", "low"), "", "mortal", False),
        (("head",), "team", "mortal", True),
        (("head", "mid"), "team", "mortal", False),
        (("head", "mid"), "team", "drone", True),
    ],
)
def test_nothing_is_deeper_than_the_tree_may_be(
    path: tuple[str, ...], profile: str, kind: str, fits: bool
) -> None:
    given = plan(Spawn(profiles=("team",)), path=path, max_depth=3)
    arguments: dict[str, Any] = {"profile": profile or None, "kind": kind}

    if fits:
        spawn(given, **arguments)
    else:
        with pytest.raises(SpawnRefused, match="would be at level 4"):
            spawn(given, **arguments)


def test_levels_are_counted_down_and_a_drone_has_none() -> None:
    assert spawn(plan(Spawn(levels=3))).levels == 2
    assert spawn(plan(Spawn(levels=1))).levels == 0
    assert spawn(plan(Spawn(levels=3)), kind="drone").levels == 0


@pytest.mark.parametrize(
    ("fields", "statuses", "dismissed"),
    [
        ({"segment": "now"}, ["fulfilled"], False),
        ({"segment": "now"}, ["unable"], False),
        ({}, ["fulfilled"], True),
        ({}, ["needs_input"], False),
        ({}, ["fulfilled", "needs_input"], False),
        ({"keep": True}, ["fulfilled"], False),
        ({"kind": "drone", "segment": "now"}, ["fulfilled"], True),
        ({"kind": "drone", "segment": "now"}, ["unable"], True),
        ({"kind": "drone"}, ["needs_input"], False),
        ({"keep": True}, [NEVER_BEGUN], True),
        ({"keep": True}, [NEVER_BEGUN, "fulfilled"], False),
        # Of a turn that was given up, nobody waits for the answer.
        ({"keep": True}, [], True),
        ({"segment": "now"}, [], True),
    ],
)
def test_present_and_dismissed_agents(
    fields: dict[str, Any], statuses: list[str], dismissed: bool
) -> None:
    given = plan(heads=made(1, *statuses, **fields))

    [name] = given.known
    assert (name not in given.living) == dismissed
    assert ("is dismissed: " in (given.find_fault(name) or "")) == dismissed


@given(
    kind=st.sampled_from(["mortal", "drone"]),
    keep=st.booleans(),
    same=st.booleans(),
    statuses=st.lists(st.sampled_from(STATUSES), min_size=1, max_size=3),
    later=st.lists(st.sampled_from(STATUSES), max_size=3),
)
def test_dismissed_state_stays_unless_the_agent_answers_again(
    kind: Any, keep: bool, same: bool, statuses: list[str], later: list[str]
) -> None:
    spec = replace(
        spawn(plan()), kind=kind, keep=keep and kind == "mortal", segment="now" if same else "then"
    )

    made_as = SpawnedAgent(spec, statuses)
    ended = made_as.is_dismissed("now")

    if ended and not spec.keep:
        assert made_as.is_dismissed("later")
    if "needs_input" in statuses:
        assert not ended


def test_a_damaged_specification_is_dismissed() -> None:
    heads = made(1, "fulfilled", keep=True)
    [(thread, head)] = heads.items()
    damaged: Any = {**head, "spawned": {**head["spawned"], "levels": "9"}}

    given = plan(heads={thread: damaged})

    assert (given.known, given.living) == ({}, {})
