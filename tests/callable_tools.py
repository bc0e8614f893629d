"""The tools of the loop that an agent may call, without a tree around it."""

from __future__ import annotations

from typing import Any

from echelons.features.feature import BuiltIn
from echelons.nodes.long_results import LongResults
from echelons.nodes.planning.core_tools import CallSubordinate, DelegateMany, ReadResult, Report
from echelons.nodes.planning.tool_calls import CallableTools


def build_callable_tools(
    *subordinates: str, can_report: bool = False, **more: Any
) -> CallableTools:
    """Return the tools of an agent with these subordinates."""
    tools: list[BuiltIn] = [ReadResult(LongResults(None))]
    if subordinates:
        tools += [CallSubordinate([]), DelegateMany()]
    if can_report:
        tools.append(Report())
    return CallableTools(
        subordinates=subordinates,
        can_report=can_report,
        built_in={tool.name: tool for tool in tools},
        **more,
    )
