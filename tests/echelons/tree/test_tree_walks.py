"""A tree is checked as a whole, walked in one order, and told apart by its shape."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from echelons import Agent, Limits
from echelons.testing import ScriptedModel
from echelons.tree.members import collect_capabilities, fingerprint_tree, walk_tree
from tests.error_codes import raises_code


def measure(task: str) -> str:
    """Measure something."""
    return task


def chain(levels: int, **root: Any) -> Agent:
    """Return a tree of so many levels, one agent on each; ``root`` goes to the first."""
    agent = Agent(f"level-{levels}")
    for level in range(levels - 1, 1, -1):
        agent = Agent(f"level-{level}", subordinates=[agent])
    return Agent("level-1", subordinates=[agent], **root)


def team() -> Agent:
    """Return a tree of three levels."""
    days = Agent("days", subordinates=[Agent("eat"), measure, Agent("tours")])
    return Agent("head", subordinates=[Agent("flights"), days, Agent("hotels")])


def test_a_tree_is_walked_superiors_first_and_in_order() -> None:
    assert [place.path_text for place in walk_tree(team())] == [
        "head",
        "head/flights",
        "head/days",
        "head/days/eat",
        "head/days/measure",
        "head/days/tours",
        "head/hotels",
    ]


def test_a_place_knows_its_member_and_its_path() -> None:
    eat = Agent("eat")
    *_, last = walk_tree(Agent("head", subordinates=[Agent("days", subordinates=[eat])]))

    assert last.member is eat
    assert last.path == ("head", "days", "eat")


# Names


def test_two_agents_of_one_name_are_refused_wherever_they_stand() -> None:
    deep = Agent("middle", subordinates=[Agent("eat")])

    with raises_code("duplicate_name") as refused:
        Agent("head", subordinates=[deep, Agent("eat")])

    assert refused.value.name == "eat"
    assert refused.value.places == ("head/middle/eat", "head/eat")
    for part in ("'eat'", "head/middle/eat", "head/eat", "rename one"):
        assert part in str(refused.value)


def test_a_subordinate_cannot_have_the_name_of_its_superior() -> None:
    with raises_code("duplicate_name") as refused:
        Agent("head", subordinates=[Agent("head")])

    assert refused.value.places == ("head", "head/head")


def test_one_agent_cannot_stand_twice_in_a_tree() -> None:
    eat = Agent("eat")

    with raises_code("duplicate_name") as refused:
        Agent("head", subordinates=[Agent("north", subordinates=[eat]), eat])

    assert refused.value.name == "eat"


def test_a_function_and_an_agent_of_one_name_are_refused() -> None:
    with raises_code("duplicate_name"):
        Agent("head", subordinates=[measure, Agent("measure")])


def test_names_that_differ_in_case_are_two_names() -> None:
    assert len(Agent("head", subordinates=[Agent("Eat"), Agent("eat")]).subordinates) == 2


# Cycles


def test_an_agent_that_stands_below_itself_is_refused() -> None:
    leaf = Agent("leaf")
    middle = Agent("middle", subordinates=[leaf])
    object.__setattr__(leaf, "subordinates", (middle,))

    with raises_code("cyclic_tree") as refused:
        Agent("head", subordinates=[middle])

    assert refused.value.path == ("head", "middle", "leaf", "middle")
    for part in ("head -> middle -> leaf -> middle", "one superior"):
        assert part in str(refused.value)


def test_an_agent_that_is_its_own_subordinate_is_refused_when_it_is_compiled() -> None:
    agent = Agent("head", model=ScriptedModel(["done"]))
    object.__setattr__(agent, "subordinates", (agent,))

    with raises_code("cyclic_tree") as refused:
        agent.compile()

    assert refused.value.path == ("head", "head")


# Depth


def test_a_tree_may_be_32_levels_deep_and_no_deeper() -> None:
    assert len(list(walk_tree(chain(32)))) == 32

    with raises_code("tree_too_deep") as refused:
        chain(33)

    assert (refused.value.depth, refused.value.limit) == (33, 32)
    for part in ("33", "no tree may be deeper than 32", "flatten"):
        assert part in str(refused.value)
    assert "raise" not in str(refused.value)


def test_a_limit_below_the_depth_of_a_tree_that_cannot_be_is_not_to_be_raised() -> None:
    with raises_code("tree_too_deep", match="no tree may be deeper than 32") as refused:
        chain(33, limits=Limits(depth=3))

    assert "Limits" not in str(refused.value)


def test_a_root_may_allow_fewer_levels() -> None:
    assert chain(3, limits=Limits(depth=3)).limits.depth == 3

    with raises_code("tree_too_deep") as refused:
        chain(4, limits=Limits(depth=3))

    assert (refused.value.depth, refused.value.limit) == (4, 3)
    assert "Limits(depth=...) up to 32" in str(refused.value)


def test_the_limit_of_a_subordinate_holds_for_its_own_branch_only() -> None:
    flat = Agent("flat", subordinates=[Agent("eat")], limits=Limits(depth=2))

    assert Agent("head", subordinates=[flat]).subordinates == (flat,)


def test_the_deepest_branch_counts_and_not_the_number_of_agents() -> None:
    wide = Agent("head", subordinates=[Agent(f"a{n}") for n in range(50)], limits=Limits(depth=2))

    assert len(list(walk_tree(wide))) == 51


# Fingerprints


def test_equal_trees_have_equal_fingerprints() -> None:
    assert fingerprint_tree(team()) == fingerprint_tree(team())


def test_the_order_of_subordinates_leaves_the_fingerprint_as_it_is() -> None:
    one = Agent("head", subordinates=[Agent("eat"), Agent("sleep")])
    other = Agent("head", subordinates=[Agent("sleep"), Agent("eat")])

    assert fingerprint_tree(one) == fingerprint_tree(other)


@pytest.mark.parametrize(
    "other",
    [
        Agent("head", subordinates=[Agent("eat")]),
        Agent("head", subordinates=[Agent("eat"), Agent("rest")]),
        Agent("chief", subordinates=[Agent("eat"), Agent("sleep")]),
        Agent("head", subordinates=[Agent("eat", subordinates=[Agent("sleep")])]),
        Agent("head", subordinates=[Agent("sleep", subordinates=[Agent("eat")])]),
    ],
)
def test_another_name_or_shape_has_another_fingerprint(other: Agent) -> None:
    tree = Agent("head", subordinates=[Agent("eat"), Agent("sleep")])

    assert fingerprint_tree(other) != fingerprint_tree(tree)


def test_every_process_comes_to_the_same_fingerprint() -> None:
    code = (
        "from echelons import Agent; from echelons.tree.members import fingerprint_tree;"
        "print(fingerprint_tree(Agent('head', subordinates=[Agent('eat'), Agent('sleep')])))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)},  # ours is random
    ).stdout.strip()

    assert found == fingerprint_tree(Agent("head", subordinates=[Agent("sleep"), Agent("eat")]))


# Capabilities


def test_a_superior_can_do_what_anybody_below_it_can_at_its_best() -> None:
    eat = Agent("eat", capabilities={"food": 0.9, "wine": 0.3})
    days = Agent("days", capabilities={"wine": 0.5, "plans": 1}, subordinates=[eat])

    assert collect_capabilities(days) == {"wine": 0.5, "plans": 1.0, "food": 0.9}


def test_agent_without_declaration_has_no_capability() -> None:
    assert collect_capabilities(team()) == {}
