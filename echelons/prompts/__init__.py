"""The texts that a model reads of Echelons itself: files, which the code fills in.

The guidance of an agent, `build_guidance`, is made of the `.md` files: who it is, what it owes its
superior, how it delegates, reports and asks, and that what others tell it is data. `tools.toml` has
what it reads of the built-in tools and of its subordinates, `memory.toml` of its memory,
`monitor.toml` those of a monitor. All models read the same.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template
from types import MappingProxyType
from typing import Any, Final

GUIDANCE_PARTS: Final = (
    "identity",
    "superior",
    "subordinates",
    "reports",
    "questions",
    "results",
    "output",
)
"""The parts of the guidance, in their order: the names of their files."""


def build_guidance(  # noqa: PLR0913  what decides which of its parts it has
    name: str,
    description: str = "",
    *,
    can_report: bool = False,
    can_ask: bool = False,
    has_superior: bool = False,
    has_subordinates: bool = False,
    output: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    r"""Return what an agent's model reads after the agent's own prompt.

    A single agent, with neither a superior nor subordinates, reads its name alone.

    Examples:
        >>> print(build_guidance("hotels"))
        You are hotels.
        >>> text = build_guidance("hotels", "Finds rooms for $5 {a night}", has_superior=True)
        >>> print(text.split("\n\n")[0])
        You are hotels, an agent in a team.
        Your purpose: "Finds rooms for $5 {a night}"
    """
    is_alone = not (has_superior or has_subordinates)
    values = {"name": name, "team": "" if is_alone else ", an agent in a team"}
    if description and not is_alone:
        values["description"] = json.dumps(description, ensure_ascii=False)
    if output is not None:
        values["schema"] = json.dumps(output, ensure_ascii=False)
    left_out = {
        "output": output is None,
        "subordinates": not has_subordinates,
        "reports": not can_report,
        "questions": not can_ask,
    }
    included = {"identity", "output"} | texts.keys() if is_alone else {*GUIDANCE_PARTS}
    parts = (part for part in GUIDANCE_PARTS if part in included and not left_out.get(part))
    shown = (
        texts[part] if part in texts else _fill_lines(_read_text(f"{part}.md"), values)
        for part in parts
    )
    return "\n\n".join(filter(None, shown))


def build_notice_guidance(mark: str) -> str:
    """Return what the mark of a thread's notices means, as its model reads it."""
    return fill_text(load_notice_texts()["mark"], mark=mark)


@cache
def load_notice_texts() -> Mapping[str, str]:
    """Return the texts about notices: `mark` says what the mark of a thread's notices means."""
    return tomllib.loads(_read_text("notices.toml"))


def build_monitor_guidance(name: str, description: str, watched: str, superior: str) -> str:
    """Return what a monitor's model reads before the monitor's own prompt."""
    values = {"name": name, "watched": watched, "superior": superior}
    if description:
        values["description"] = json.dumps(description, ensure_ascii=False)
    return _fill_lines(load_monitor_texts()["guidance"].strip(), values)


@cache
def load_monitor_texts() -> Mapping[str, str]:
    """Return the texts of a monitor: its `guidance`, its two tools, and their parameters."""
    return tomllib.loads(_read_text("monitor.toml"))


def load_tool_texts(tool: str) -> Mapping[str, str]:
    """Return the texts of a built-in tool: its `description`, and those of its parameters."""
    return _load_tools()[tool]


@cache
def load_memory_texts() -> Mapping[str, str]:
    """Return the texts about an agent's memory: `summaries`, `pins` and `summarizer`."""
    return tomllib.loads(_read_text("memory.toml"))


@cache
def load_governance_texts() -> Mapping[str, str]:
    """Return the texts of the middleware about plans, points and verification."""
    return tomllib.loads(_read_text("governance.toml"))


def fill_text(text: str, **values: str) -> str:
    """Return a text with its names filled in; what is filled in is never read as a template."""
    return Template(text).substitute(values)


def _fill_lines(text: str, values: dict[str, str]) -> str:
    """Return the lines of a text for whose names there are values, filled in."""
    lines = (Template(line) for line in text.splitlines())
    return "\n".join(
        line.substitute(values) for line in lines if values.keys() >= set(line.get_identifiers())
    )


@cache
def _read_text(name: str) -> str:
    return files("echelons.prompts").joinpath(name).read_text(encoding="utf-8").strip()


@cache
def _load_tools() -> dict[str, dict[str, str]]:
    return tomllib.loads(_read_text("tools.toml"))
