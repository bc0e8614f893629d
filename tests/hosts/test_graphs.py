"""Agents of LangChain and graphs of LangGraph, around our trees and inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hosts.checks import ANSWERED, check_guest, check_host, check_two_calls

if TYPE_CHECKING:
    from tests.hosts.conftest import Visit


@pytest.mark.parametrize("host", ["agent_with_tool", "graph_with_tool_node"])
def test_a_tool_asks_its_host_from_the_third_level_and_goes_on_in_another_process(
    visit: Visit, host: str
) -> None:
    last = check_host(visit, f"tests.hosts.graphs:{host}")

    assert last["tools"] == [["travel", ANSWERED]]


def test_a_node_asks_its_host_from_the_third_level_and_goes_on_in_another_process(
    visit: Visit,
) -> None:
    last = check_host(visit, "tests.hosts.graphs:graph_with_node", asked="Breakfast? Rome")

    assert last["said"][-2] == ANSWERED


def test_two_calls_of_one_message_ask_at_once(visit: Visit) -> None:
    check_two_calls(visit, "tests.hosts.graphs:agent_with_two_calls")


@pytest.mark.parametrize("guest", ["agent", "typed_agent"])
def test_an_agent_on_the_third_level_asks_and_goes_on_in_another_process(
    visit: Visit, guest: str
) -> None:
    last = check_guest(visit, f"tests.hosts.graphs:{guest}")

    assert last["said"] == '{"name": "Ibis, breakfast: yes"}'
    assert last["streamed"] >= {"task", "message", "tool_call", "question", "answer", "response"}


def test_a_graph_on_the_third_level_reads_its_input_asks_and_goes_on_in_another_process(
    visit: Visit,
) -> None:
    last = check_guest(visit, "tests.hosts.graphs:graph", asked="Breakfast? Rome, 2 nights")

    assert last["said"] == '{"name": "Ibis, yes"}'
    assert last["streamed"] >= {"task", "message", "question", "answer", "response"}
