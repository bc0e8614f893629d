"""Supervisors of langgraph-supervisor, around our trees and inside them."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from langgraph_supervisor import create_supervisor

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

# It makes its agents with a function that LangGraph has moved.
pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")


def test_a_tool_asks_its_host_from_the_third_level_and_goes_on_in_another_process(
    visit: Visit,
) -> None:
    last = check_host(visit, "tests.hosts.supervisors:with_tool")

    assert last["tools"] == [["travel", ANSWERED]]


def test_two_calls_of_one_message_ask_at_once(visit: Visit) -> None:
    check_two_calls(visit, "tests.hosts.supervisors:with_two_calls")


def test_a_member_asks_its_host_from_the_third_level_and_goes_on_in_another_process(
    visit: Visit,
) -> None:
    last = check_host(visit, "tests.hosts.supervisors:with_member", asked="Breakfast? Rome")

    assert ANSWERED in last["said"]


def test_a_supervisor_whose_member_asks_goes_on_in_another_process(visit: Visit) -> None:
    last = check_guest(visit, "tests.hosts.supervisors:supervisor")

    assert last["said"] == '{"name": "Ibis, breakfast: yes"}'
    assert last["streamed"] >= LIKE_AN_AGENT


def test_wrong_arguments_go_back_to_the_hosts_model() -> None:
    check_wrong_arguments(
        lambda model, tool: create_supervisor([], model=model, tools=[tool]).compile()
    )
