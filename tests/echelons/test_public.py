"""The public surface is frozen: a name more or less is a decision, not an accident."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import echelons

FROZEN = [
    "Agent",
    "AgentPath",
    "AsyncRun",
    "BreakerPolicy",
    "Budget",
    "Capability",
    "Contract",
    "Decision",
    "DelegationPolicy",
    "DelegationRequest",
    "DelegationResponse",
    "EchelonsError",
    "Human",
    "Limits",
    "OutcomeUnknown",
    "Permissions",
    "Question",
    "Result",
    "Run",
    "RunEvent",
    "Session",
    "Spawn",
    "SqliteCheckpointer",
    "Status",
    "ThreadStore",
    "Usage",
    "effect",
    "get_logger",
    "get_request",
    "idempotency_key",
    "redact_secrets",
    "subordinate",
    "time_left",
]


def public_methods() -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that a public class defines itself."""
    for name in FROZEN:
        owner = getattr(echelons, name)
        for attribute, value in vars(owner).items():
            if not attribute.startswith("_") and (
                inspect.isfunction(value) or isinstance(value, (property, classmethod))
            ):
                yield f"{name}.{attribute}", value


def test_the_public_names_are_these() -> None:
    assert echelons.__all__ == FROZEN
    assert len(echelons.__all__) <= 33


@pytest.mark.parametrize("name", FROZEN)
def test_every_public_name_leads_somewhere_and_says_what_it_is(name: str) -> None:
    thing = getattr(echelons, name)

    assert thing.__name__ == name
    assert inspect.getdoc(thing)
    assert inspect.getdoc(thing) != inspect.getdoc(Exception)


@pytest.mark.parametrize("method", [pytest.param(each, id=name) for name, each in public_methods()])
def test_every_public_method_says_what_it_does(method: Any) -> None:
    assert inspect.getdoc(method)


def test_the_names_can_be_listed_and_imported_by_a_star() -> None:
    assert set(FROZEN) <= set(dir(echelons))
    code = "from echelons import *; print(sorted(n for n in globals() if n[0] != '_'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(sorted(FROZEN))


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Nothing'"):
        _ = echelons.Nothing


def test_a_public_name_is_one_object_however_it_is_imported() -> None:
    from echelons.agent import Agent
    from echelons.runtime.session import Session

    assert echelons.Agent is Agent
    assert echelons.Session is Session
