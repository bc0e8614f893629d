"""What an agent can say of itself, and how it is kept."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from echelons import Agent
from echelons.capabilities import Capability, DeclaredCapabilities, check_capabilities
from echelons.tree.members import collect_capabilities, fingerprint_tree
from tests.error_codes import raises_code

BOOKING = Capability(0.8, examples=["book a table for two"])


def kept(agent: Agent) -> DeclaredCapabilities:
    assert isinstance(agent.capabilities, DeclaredCapabilities)
    return agent.capabilities


def test_plain_confidences_and_capabilities_with_examples_stand_side_by_side() -> None:
    agent = Agent("eat", capabilities={"dining": 0.9, "booking": BOOKING})

    assert dict(agent.capabilities) == {"dining": 0.9, "booking": 0.8}
    assert kept(agent).full["booking"].examples == ("book a table for two",)
    assert kept(agent).full["dining"] == Capability(0.9)


def test_capabilities_are_shown_as_plain_numbers() -> None:
    with_examples = Agent("eat", capabilities={"booking": BOOKING})
    plain = Agent("eat", capabilities={"booking": 0.8})

    assert with_examples.capabilities == plain.capabilities
    assert json.dumps(dict(with_examples.capabilities)) == '{"booking": 0.8}'
    assert collect_capabilities(with_examples) == {"booking": 0.8}
    assert fingerprint_tree(with_examples) == fingerprint_tree(plain)


def test_a_copy_of_an_agent_keeps_its_examples() -> None:
    agent = Agent("eat", capabilities={"booking": BOOKING})

    assert kept(replace(agent, prompt="Book.")).full == kept(agent).full
    assert pickle.loads(pickle.dumps(agent.capabilities)).full == kept(agent).full
    assert copy.deepcopy(kept(agent)).full == kept(agent).full


def test_what_is_declared_never_changes() -> None:
    given = {"booking": BOOKING}
    agent = Agent("eat", capabilities=given)
    given["more"] = BOOKING

    assert list(agent.capabilities) == ["booking"]
    with pytest.raises(AttributeError, match="never changes"):
        kept(agent).full = {}
    with pytest.raises(TypeError):
        kept(agent).full["more"] = BOOKING  # type: ignore[index]
    with pytest.raises(ValidationError):
        BOOKING.confidence = 1.0


@pytest.mark.parametrize(
    "confidence", [-0.1, 1.1, float("nan"), float("inf"), True, None, "0.5", 10**400]
)
def test_a_confidence_that_is_none_is_refused(confidence: Any) -> None:
    with raises_code("invalid_capability") as refused:
        Capability(confidence)

    assert refused.value.confidence is confidence
    assert "from 0 to 1" in str(refused.value)


@pytest.mark.parametrize(
    "examples", ["book a table", b"book", [""], ["  "], [3], None, 7, {"a": 1}]
)
def test_examples_that_are_no_texts_are_refused(examples: Any) -> None:
    with raises_code("invalid_examples", match="list of tasks"):
        Capability(0.5, examples=examples)


@pytest.mark.parametrize("name", ["", " ", 3, None])
def test_a_name_that_is_none_is_refused_with_its_agent(name: Any) -> None:
    with raises_code("invalid_capability") as refused:
        check_capabilities("eat", {name: BOOKING})

    assert refused.value.agent == "eat"
    assert refused.value.capability is name


def test_examples_may_come_from_a_generator() -> None:
    assert Capability(1, (text for text in ["one", "two"])).examples == ("one", "two")


def test_a_capability_survives_json() -> None:
    assert Capability.model_validate_json(BOOKING.model_dump_json()) == BOOKING
