"""A human is checked as an agent is, and stands in a tree like one."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from echelons import Agent, Capability, Human, subordinate
from echelons.human import MAX_TIMEOUT
from echelons.tree.members import Member, fingerprint_tree
from tests.error_codes import raises_code


def test_a_human_is_a_member_of_a_tree() -> None:
    anna = Human("anna", "Signs", capabilities={"signing": Capability(0.7, ["Sign it"])})

    assert isinstance(anna, Member)
    assert Agent("head", subordinates=[anna]).subordinates == (anna,)
    assert dict(anna.capabilities) == {"signing": 0.7}
    assert anna.subordinates == ()


def test_a_drawing_shows_it() -> None:
    drawing = Agent("head", subordinates=[Human("anna", "Signs")]).draw()

    assert drawing.text == "head\n└── anna: Signs"
    assert "<b>anna</b><br/>Signs" in drawing.mermaid


def test_a_tree_with_a_human_differs_from_one_with_an_agent_of_its_name() -> None:
    with_human = Agent("head", subordinates=[Human("anna")])

    assert fingerprint_tree(with_human) != fingerprint_tree(
        Agent("head", subordinates=[Agent("anna")])
    )


def test_subordinate_makes_a_changed_copy() -> None:
    anna = subordinate(Human("anna", timeout=5), name="bert", description="Pays")

    assert isinstance(anna, Human)
    assert (anna.name, anna.description, anna.timeout) == ("bert", "Pays", 5)


def test_a_human_can_be_copied_and_pickled() -> None:
    anna = Human("anna", "Signs", capabilities={"signing": 0.7}, timeout=5)

    for each in (copy.deepcopy(anna), pickle.loads(pickle.dumps(anna))):
        assert (each.name, each.description, each.timeout) == ("anna", "Signs", 5)
        assert dict(each.capabilities) == {"signing": 0.7}


@pytest.mark.parametrize("name", ["", " ", "anna b", "1st", None, 3])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with raises_code("invalid_name"):
        Human(name)


def test_a_name_stands_once_in_a_tree() -> None:
    with raises_code("duplicate_name"):
        Agent("head", subordinates=[Human("anna"), Agent("lead", subordinates=[Human("anna")])])


@pytest.mark.parametrize("timeout", [0, -1, "5", True, float("nan"), float("inf"), MAX_TIMEOUT + 1])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    with raises_code("invalid_field", match="timeout"):
        Human("anna", timeout=timeout)


@pytest.mark.parametrize("description", [None, 3, ["Signs"]])
def test_a_description_that_is_no_text_is_refused(description: Any) -> None:
    with raises_code("invalid_field", match="description"):
        Human("anna", description)


def test_capabilities_are_checked() -> None:
    with raises_code("invalid_capability"):
        Human("anna", capabilities={"signing": 2})
