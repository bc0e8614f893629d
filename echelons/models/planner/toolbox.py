"""The tools of a model call, sorted by purpose: delegation, reporting and the agent's own.

They are read from the bound tools at every call; `reply_plan` uses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from echelons.delegation.contract import DelegationTool
from echelons.language.team_index import TeamIndex, parse_team
from echelons.models.planner.tool_parameters import ToolParameter, read_parameters
from echelons.tree.names import BUILT_IN_TOOLS, CALL_SUBORDINATE, REPORT

DELEGATE_TOOL: Final = CALL_SUBORDINATE
REPORT_TOOL: Final = REPORT

_SECTION: Final = re.compile(r"\n[ \t]{0,40}(?:Args|Arguments|Parameters|Returns|Raises):")


@dataclass(frozen=True)
class ToolSpec:
    """A tool of the agent's own."""

    name: str
    description: str = ""
    parameters: tuple[ToolParameter, ...] = ()

    @classmethod
    def from_openai(cls, written: object) -> ToolSpec | None:
        """Return the tool for OpenAI's format; None if `written` is no function with a name."""
        function = written.get("function", written) if isinstance(written, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return None
        description = str(function.get("description") or "")
        return cls(function["name"], description, read_parameters(function.get("parameters")))

    @cached_property
    def summary(self) -> str:
        """The description before its sections on arguments and results."""
        return _SECTION.split(self.description, maxsplit=1)[0]


@dataclass(frozen=True)
class Toolbox:
    """The tools of one model call; with `can_report`, the agent has a superior to report to.

    `typed` are those that are named after a subordinate, by its name.
    """

    team: TeamIndex
    own_tools: tuple[ToolSpec, ...] = ()
    can_report: bool = False
    typed: Mapping[str, ToolSpec] = field(default_factory=dict)

    @classmethod
    def from_tools(cls, tools: Iterable[Any]) -> Toolbox:
        """Return the toolbox of `tools`; invalid ones and repeated names are skipped."""
        read: dict[str, ToolSpec] = {}
        roster = ""
        for written in tools:
            tool = ToolSpec.from_openai(written)
            if isinstance(written, DelegationTool):
                roster = written.roster
            if tool is not None:
                read.setdefault(tool.name, tool)
        team = TeamIndex(())
        if delegate := read.get(DELEGATE_TOOL):
            choices = next((p.choices for p in delegate.parameters if p.name == "subordinate"), ())
            names = tuple(name for name in choices if isinstance(name, str))
            team = parse_team(roster or delegate.description, names)
        typed = {name: read[name] for name in team.names if name in read}
        taken = BUILT_IN_TOOLS | typed.keys()
        own = tuple(tool for tool in read.values() if tool.name not in taken)
        return cls(team, own, REPORT_TOOL in read, typed)
