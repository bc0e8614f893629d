"""What a model is shown of the tools that delegate is what their arguments accept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from echelons import Agent, Spawn, Status
from echelons.delegation.policy import DEFAULT_POLICY
from echelons.features.budget.feature import BudgetHooks
from echelons.features.feature import Place
from echelons.features.spawning.feature import SpawnSource, SpawnSubordinate
from echelons.features.spawning.plan import SpawnSubordinateArgs
from echelons.guards.budget import UNITS
from echelons.nodes.planning.call_arguments import DelegatingTool
from echelons.nodes.planning.core_tools import (
    CallSubordinate,
    CallSubordinateArgs,
    DelegateMany,
    Report,
    ReportArgs,
)
from echelons.tree.members import parse_roster


def function(schema: dict[str, Any]) -> dict[str, Any]:
    assert schema["type"] == "function"
    return dict(schema["function"])


def team() -> list[Agent]:
    days = Agent(
        "days",
        "Plans days",
        capabilities={"plans": 0.4},
        subordinates=[Agent("eat", capabilities={"food": 0.9, "plans": 0.7})],
    )
    return [Agent("flights", "Finds flights", capabilities={"flights": 1.0}), days]


def test_planner_reads_the_capabilities_of_each_branch_beside_the_schema() -> None:
    schema = CallSubordinate(team()).build_schema()

    assert "flights" not in function(schema)["description"]
    roster = parse_roster(schema.roster)
    assert [(each.name, each.description) for each in roster] == [
        ("flights", "Finds flights"),
        ("days", "Plans days"),
    ]
    assert roster[1].capabilities == {"plans": 0.7, "food": 0.9}


def test_only_direct_subordinates_can_be_named() -> None:
    parameters = function(CallSubordinate(team()).build_schema())["parameters"]

    assert parameters["properties"]["subordinate"]["enum"] == ["flights", "days"]
    assert parameters["required"] == ["message"]


def test_an_only_subordinate_need_not_be_named() -> None:
    parameters = function(CallSubordinate(team()[:1]).build_schema())["parameters"]

    assert parameters["required"] == ["message"]


def test_a_call_goes_on_with_a_conversation_unless_it_says_otherwise() -> None:
    shown = function(CallSubordinate(team()).build_schema())["parameters"]["properties"]

    assert "default" not in shown["reset"]
    assert CallSubordinateArgs(message="x").reset is False


@pytest.mark.parametrize(
    ("schema", "model"),
    [
        (CallSubordinate(team()).build_schema(), CallSubordinateArgs),
        (Report().build_schema(), ReportArgs),
    ],
)
def test_the_arguments_shown_are_the_arguments_accepted(schema: dict[str, Any], model: Any) -> None:
    shown = function(schema)["parameters"]

    # A profile is for a subordinate made at run time, and no model is told that one can be; an
    # input is for one with a contract.
    assert set(shown["properties"]) == set(model.model_fields) - {"profile", "input"}
    needed = {name for name, field in model.model_fields.items() if field.is_required()}
    assert needed <= set(shown["required"])


def test_a_report_can_say_each_of_the_four_endings() -> None:
    shown = function(Report().build_schema())["parameters"]["properties"]["status"]["enum"]

    assert shown == [str(status) for status in Status]
    assert [ReportArgs(status=Status(each)).status for each in shown] == list(Status)


@pytest.mark.parametrize("confidence", [-0.1, 1.1, "high"])
def test_a_confidence_out_of_its_range_is_refused(confidence: Any) -> None:
    with pytest.raises(ValidationError):
        ReportArgs(status=Status.PARTIAL, confidence=confidence)


def spawning(rules: Spawn, contact_user: bool = False) -> dict[str, Any]:
    shown = function(SpawnSubordinate(rules, contact_user).build_schema())["parameters"]
    assert shown["required"] == ["role", "message"]
    return dict(shown["properties"])


def test_a_model_is_shown_what_it_may_spawn_and_nothing_else() -> None:
    assert [*spawning(Spawn())] == ["role", "message", "kind", "keep"]
    assert [*spawning(Spawn(kinds=("drone",)))] == ["role", "message", "kind"]
    everything = spawning(Spawn(profiles=("clerk",), tools=("mail",)), contact_user=True)
    assert {*everything} == {*SpawnSubordinateArgs.model_fields}
    assert everything["profile"]["enum"] == ["clerk"]
    assert everything["tools"]["items"]["enum"] == ["mail"]
    assert all(each["description"] for key, each in everything.items())


def show_with_budget(tool: DelegatingTool, *, has_budget: bool) -> dict[str, Any]:
    """Return the parameters of a tool, as it is shown to an agent with or without a budget."""
    tool.add_fields(BudgetHooks(has_budget=has_budget).request_fields)
    return dict(function(tool.build_schema())["parameters"]["properties"])


def test_only_agent_with_budget_reads_that_it_may_grant_a_part() -> None:
    tools: list[Callable[..., DelegatingTool]] = [
        partial(CallSubordinate, team()),
        DelegateMany,
        partial(SpawnSubordinate, Spawn(), contact_user=False),
    ]
    for build in tools:
        plain, shown = (show_with_budget(build(), has_budget=has) for has in (False, True))
        assert shown.keys() - plain.keys() == {"budget"}
        assert {*shown["budget"]["properties"]} == {*UNITS}
        assert shown["budget"]["description"]


def source(*profiles: str) -> SpawnSource:
    place = Place(
        agent=Agent("head"), model=None, can_call=True, reports=False, policy=DEFAULT_POLICY
    )
    return SpawnSource(place, Spawn(profiles=profiles))


def test_spawning_agent_lists_its_spawned_agents() -> None:
    plain = function(CallSubordinate(team()).build_schema())["parameters"]["properties"]
    schema = CallSubordinate(team(), source("clerk")).build_schema()
    properties = function(schema)["parameters"]["properties"]

    assert "profile" not in plain
    assert "enum" not in properties["subordinate"]
    assert properties["profile"]["enum"] == ["clerk"]
    assert [each.name for each in parse_roster(schema.roster)] == ["flights", "days"]
    assert CallSubordinate([], source()).build_schema().roster == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": ""},
        {"role": "x" * 201},
        {"message": ""},
        {"message": "é" * (32 * 1024 + 1)},
        {"kind": "monitor"},
        {"keep": "yes"},
        {"contact_user": 1},
        {"tools": "mail"},
        {"tools": [7]},
        {"profile": ["clerk"]},
    ],
)
def test_arguments_that_spawn_no_agent_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SpawnSubordinateArgs(**{"role": "scout", "message": "look", **wrong})


@pytest.mark.parametrize("role", ["a\nb", "a\u2028b", "a\x00b", "a\x1b[0mb", "a\u202eb"])
def test_a_role_is_one_printable_line(role: str) -> None:
    assert SpawnSubordinateArgs(role=role, message="look").role.isprintable()
