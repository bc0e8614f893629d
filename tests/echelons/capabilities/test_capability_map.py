"""The map of a tree: what it shows, and that an added agent changes only its way to the root."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent
from echelons.capabilities import Capability, CapabilityMap
from echelons.errors import UnknownPath
from tests.error_codes import raises_code


def team() -> Agent:
    eat = Agent("eat", capabilities={"food": 0.9, "booking": Capability(0.8, ["a table", "two"])})
    tours = Agent("tours", "Shows sights")
    fun = Agent("fun", subordinates=[eat, tours])
    return Agent("head", subordinates=[Agent("fly", capabilities={"flights": 1}), fun])


def test_a_superior_knows_its_subordinates_maps() -> None:
    known = CapabilityMap.discover(team())

    assert [each.agent for each in known.subordinates] == ["fly", "fun"]
    assert known.subordinates[1] == CapabilityMap.discover(team().subordinates[1])
    assert [path for path, _ in known.walk()] == [
        ("head",),
        ("head", "fly"),
        ("head", "fun"),
        ("head", "fun", "eat"),
        ("head", "fun", "tours"),
    ]


def test_the_total_depth_of_a_leaf_is_0() -> None:
    known = CapabilityMap.discover(team())

    assert known.total_depth == 2
    assert {each.agent: each.total_depth for _, each in known.walk()} == {
        "head": 2,
        "fly": 0,
        "fun": 1,
        "eat": 0,
        "tours": 0,
    }


def test_a_map_prints_as_a_tree() -> None:
    assert str(CapabilityMap.discover(team())) == (
        "head: head (0.8, derived)\n"
        "├── fly: flights (1)\n"
        "└── fun: fun (0.8, derived)\n"
        "    ├── eat: food (0.9), booking (0.8, 2 examples)\n"
        "    └── tours: tours (0.8, derived)"
    )


def test_what_an_author_wrote_cannot_act_on_a_terminal_through_a_map() -> None:
    known = CapabilityMap.discover(Agent("eat", capabilities={"red \x1b[31m\nfood": 1}))

    assert str(known) == "eat: red [31m food (1)"


def test_a_map_is_data_for_programs() -> None:
    eat = CapabilityMap.discover(team()).to_json()["subordinates"][1]["subordinates"][0]

    assert eat == {
        "agent": "eat",
        "derived": False,
        "total_depth": 0,
        "capabilities": {
            "food": {"confidence": 0.9, "examples": []},
            "booking": {"confidence": 0.8, "examples": ["a table", "two"]},
        },
        "subordinates": [],
    }


def test_an_added_agent_makes_new_maps_only_on_its_way_to_the_root() -> None:
    before = CapabilityMap.discover(team())
    after = before.add("head/fun", Agent("opera"))

    old = {id(each) for _, each in before.walk()}
    assert [each.agent for _, each in after.walk() if id(each) not in old] == [
        "head",
        "fun",
        "opera",
    ]
    assert "opera" not in str(before)


def test_an_agent_below_a_leaf_makes_the_tree_deeper() -> None:
    known = CapabilityMap.discover(team()).add(["head", "fly"], Agent("gates"))

    assert ("head", "fly", "gates") in [path for path, _ in known.walk()]
    assert known.add("head/fly/gates", Agent("seats")).total_depth == 3


@pytest.mark.parametrize("path", ["nobody", "head/nobody", "fun", "", [], "head/fun/eat/more"])
def test_agent_cannot_be_added_under_missing_superior(path: str | list[str]) -> None:
    with pytest.raises(UnknownPath, match="no agent"):
        CapabilityMap.discover(team()).add(path, Agent("opera"))


@pytest.mark.parametrize("name", ["head", "fun", "eat"])
def test_a_name_on_the_way_or_beside_it_is_taken(name: str) -> None:
    with raises_code("duplicate_name"):
        CapabilityMap.discover(team()).add("head/fun", Agent(name))


def test_a_removed_agent_is_gone_with_all_below_it_and_the_others_stay() -> None:
    before = CapabilityMap.discover(team())
    after = before.remove("head/fun")

    assert [path for path, _ in after.walk()] == [("head",), ("head", "fly")]
    assert after.total_depth == 1
    assert after.subordinates[0] is before.subordinates[0]
    assert "eat" in str(before)


def test_removing_makes_new_maps_only_on_the_way_to_the_root() -> None:
    before = CapabilityMap.discover(team())
    after = before.remove(["head", "fun", "eat"])

    old = {id(each) for _, each in before.walk()}
    assert [each.agent for _, each in after.walk() if id(each) not in old] == ["head", "fun"]
    assert before.add("head/fun", Agent("opera")).remove("head/fun/opera") == before


@pytest.mark.parametrize("path", ["nobody", "head/nobody", "fun", "", [], "head/fun/eat/more"])
def test_an_agent_that_is_not_there_cannot_be_removed(path: str | list[str]) -> None:
    with pytest.raises(UnknownPath, match="no agent"):
        CapabilityMap.discover(team()).remove(path)


def test_the_root_of_a_map_cannot_be_removed() -> None:
    with raises_code("invalid_subordinate", match="name an agent below"):
        CapabilityMap.discover(team()).remove("head")


def tree_of(superiors: list[int]) -> tuple[Agent, dict[int, tuple[str, ...]]]:
    """Return a tree in which agent ``n + 1`` works for agent ``superiors[n]``, and the paths."""
    below: dict[int, list[int]] = {}
    for number, superior in enumerate(superiors, 1):
        below.setdefault(superior, []).append(number)
    paths: dict[int, tuple[str, ...]] = {}

    def made(number: int, above: tuple[str, ...]) -> Agent:
        paths[number] = path = (*above, f"agent{number}")
        return Agent(path[-1], subordinates=[made(each, path) for each in below.get(number, [])])

    return made(0, ()), paths


@given(st.data(), st.integers(min_value=1, max_value=12))
def test_a_map_that_grew_is_the_map_of_the_grown_tree(data: st.DataObject, size: int) -> None:
    superiors = [data.draw(st.integers(0, number)) for number in range(size)]
    grown = CapabilityMap.discover(tree_of([])[0])
    for number in range(size):
        _, paths = tree_of(superiors[:number])
        grown = grown.add(paths[superiors[number]], Agent(f"agent{number + 1}"))

    assert grown == CapabilityMap.discover(tree_of(superiors)[0])
