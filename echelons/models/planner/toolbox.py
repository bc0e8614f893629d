"""The tools of a model call, sorted by purpose: delegation, reporting and the agent's own.

They are read from the bound tools at every call; `reply_plan` uses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from echelons.language.team_index import Team, team_of
from echelons.models.planner.tool_parameters import Parameter, parameters

DELEGATE: Final = "call_subordinate"
REPORT: Final = "report"
BUILT_IN: Final = frozenset(
    {DELEGATE, REPORT, "delegate_many", "ask_superior", "contact_user", "send_message"}
)
"""Tools that any agent may have, none of which is its own."""

_SECTION: Final = re.compile(r"\n[ \t]{0,40}(?:Args|Arguments|Parameters|Returns|Raises):")


@dataclass(frozen=True)
class Tool:
    """A tool of the agent's own.

    Attributes:
        name: Its name.
        description: Its description.
        parameters: Its parameters.
    """

    name: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()

    @classmethod
    def read(cls, written: object) -> Tool | None:
        """Return the tool for OpenAI's format; None if `written` is no function with a name."""
        function = written.get("function", written) if isinstance(written, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return None
        description = str(function.get("description") or "")
        return cls(function["name"], description, parameters(function.get("parameters")))

    @cached_property
    def summary(self) -> str:
        """The description before its sections on arguments and results."""
        return _SECTION.split(self.description, maxsplit=1)[0]


@dataclass(frozen=True)
class Toolbox:
    """The tools of one model call.

    Attributes:
        team: The subordinates that can be called.
        own: The agent's own tools.
        reports: Whether the agent has a superior to report to.
    """

    team: Team
    own: tuple[Tool, ...] = ()
    reports: bool = False

    @classmethod
    def read(cls, tools: Iterable[Any]) -> Toolbox:
        """Return the toolbox of `tools`; invalid ones and repeated names are skipped."""
        read: dict[str, Tool] = {}
        for written in tools:
            tool = Tool.read(written)
            if tool is not None:
                read.setdefault(tool.name, tool)
        team = _team(read.get(DELEGATE))
        taken = BUILT_IN | set(team.names)  # a subordinate bound as a tool of its own
        own = tuple(tool for tool in read.values() if tool.name not in taken)
        return cls(team, own, REPORT in read)


def _team(delegate: Tool | None) -> Team:
    if delegate is None:
        return Team(())
    whom = next((p for p in delegate.parameters if p.name == "subordinate"), None)
    names = tuple(name for name in whom.choices if isinstance(name, str)) if whom else ()
    return team_of(delegate.description, names)
