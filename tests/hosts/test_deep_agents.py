"""Deep agents, around our trees and inside them."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import TYPE_CHECKING

from deepagents import create_deep_agent

from tests.hosts.checks import (
    ANSWERED,
    LIKE_AN_AGENT,
    check_guest,
    check_host,
    check_two_calls,
    check_wrong_arguments,
)

if TYPE_CHECKING:
    from tests.hosts.conftest import Visit


def test_a_tool_asks_its_host_from_the_third_level_and_goes_on_in_another_process(
    visit: Visit,
) -> None:
    last = check_host(visit, "tests.hosts.deep_agents:with_tool")

    assert last["tools"] == [["travel", ANSWERED]]


def test_a_tool_of_a_subagent_asks_likewise(visit: Visit) -> None:
    last = check_host(visit, "tests.hosts.deep_agents:with_tool_of_subagent")

    assert last["tools"] == [["task", "Found."]]


def test_a_subagent_asks_likewise(visit: Visit) -> None:
    last = check_host(visit, "tests.hosts.deep_agents:with_subagent", asked="Breakfast? Rome")

    assert last["tools"] == [["task", ANSWERED]]


def test_two_calls_of_one_message_ask_at_once(visit: Visit) -> None:
    check_two_calls(visit, "tests.hosts.deep_agents:with_two_calls")


def test_two_tasks_of_one_message_ask_at_once(visit: Visit) -> None:
    check_two_calls(visit, "tests.hosts.deep_agents:with_two_subagents", tool="task")


def test_a_deep_agent_whose_subagent_asks_goes_on_in_another_process(visit: Visit) -> None:
    last = check_guest(visit, "tests.hosts.deep_agents:agent")

    assert last["said"] == '{"name": "Ibis, breakfast: yes"}'
    assert last["streamed"] >= LIKE_AN_AGENT


def test_a_deep_agent_whose_tool_is_held_takes_a_decision_in_another_process(
    visit: Visit,
) -> None:
    guest = "tests.hosts.deep_agents:agent_with_approval"
    [question] = visit(guest=guest)["questions"]

    last = visit({question: "approve"}, guest=guest)

    assert last["said"] == '{"name": "Ibis, breakfast: in Rome"}'
    assert "approval" in last["streamed"]


def test_wrong_arguments_go_back_to_the_hosts_model() -> None:
    check_wrong_arguments(lambda model, tool: create_deep_agent(model, [tool]))
