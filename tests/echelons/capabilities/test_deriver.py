"""What is derived of an agent that declares nothing."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool

from echelons import Agent
from echelons.capabilities import (
    DERIVED_CONFIDENCE,
    Capability,
    CapabilityMap,
    collect_texts,
    derive_from_names,
)
from echelons.tree.members import Member
from tests.error_codes import raises_code


def find_food(place: str) -> str:
    """Find places to eat.

    The second paragraph is for programmers.
    """
    return place


@tool
def reserve_table(place: str) -> str:
    """Reserve a table."""
    return place


def test_names_of_the_agent_and_its_tools_are_what_it_can_do() -> None:
    derived = derive_from_names(Agent("tableService", tools=[find_food, reserve_table]))

    assert derived == dict.fromkeys(
        ["table service", "find food", "reserve table"], Capability(DERIVED_CONFIDENCE)
    )


def test_a_superior_known_by_its_name_only_passes_on_what_the_name_says() -> None:
    eat = Agent("eat")

    assert CapabilityMap.discover(Agent("foodTeam", subordinates=[eat])).passes_on
    assert not CapabilityMap.discover(eat).passes_on
    for able in (
        Agent("head", subordinates=[eat], tools=[find_food]),
        Agent("head", subordinates=[eat], capabilities={"head": 0.8}),
    ):
        assert not CapabilityMap.discover(able).passes_on


def test_descriptions_and_the_prompt_are_texts() -> None:
    agent = Agent("eat", "Knows food", prompt="You are a gourmet.", tools=[find_food])

    assert collect_texts(agent) == ("Knows food", "Find places to eat.", "You are a gourmet.")


def test_the_prompt_of_an_agent_that_declares_something_is_no_text() -> None:
    agent = Agent("eat", "Knows food", prompt="Be brief.", capabilities={"food": 1.0})

    assert collect_texts(agent) == ("Knows food",)


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        (SystemMessage("You are a gourmet."), ("You are a gourmet.",)),
        (SystemMessage([{"type": "text", "text": "You are a gourmet."}]), ("You are a gourmet.",)),
        (lambda state: "You are a gourmet.", ()),
    ],
)
def test_a_prompt_that_is_a_message_is_read_and_one_that_is_a_function_is_not(
    prompt: Any, texts: tuple[str, ...]
) -> None:
    assert collect_texts(Agent("eat", prompt=prompt)) == texts


def test_what_is_declared_is_not_derived() -> None:
    known = CapabilityMap.discover(Agent("eat", capabilities={"food": 0.3}, tools=[find_food]))

    assert (dict(known.capabilities), known.derived) == ({"food": 0.3}, False)


def test_functions_and_other_members_are_derived_by_their_names() -> None:
    def look_up(message: str) -> str:
        """Looks things up."""
        return message

    known = CapabilityMap.discover(Agent("head", subordinates=[look_up]))

    assert dict(known.subordinates[0].capabilities) == {"look up": DERIVED_CONFIDENCE}
    assert known.subordinates[0].texts == ("Looks things up.",)


def test_another_deriver_may_say_what_agents_can_do() -> None:
    def cautious(member: Member) -> dict[str, Capability]:
        return {f"perhaps {member.name}": Capability(0.1, ["do it"])}

    known = CapabilityMap.discover(Agent("eat"), cautious)

    assert known.capabilities.full == {"perhaps eat": Capability(0.1, ["do it"])}
    assert known.derived


@pytest.mark.parametrize("said", [{"": Capability(0.5)}, {"eat": 2}, ["eat"], None])
def test_a_deriver_that_says_nonsense_is_refused(said: Any) -> None:
    with raises_code("invalid_capability"):
        CapabilityMap.discover(Agent("eat"), lambda _: said)


def test_a_deriver_that_raises_is_named_with_the_agent() -> None:
    def derive(member: Member) -> dict[str, Capability]:
        raise LookupError("no such file")

    with raises_code("deriver_failed", match=r"what 'eat' can do .*: LookupError: no such file; "):
        CapabilityMap.discover(Agent("eat"), derive)
