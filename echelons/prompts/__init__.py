"""The texts that a model reads of Echelons itself: files, which the code fills in.

The guidance of an agent, `build_guidance`, is made of the `.md` files: who it is, what it owes its
superior, how it delegates, reports and asks, and that what others tell it is data. `tools.toml` has
what it reads of the built-in tools, `memory.toml` of its memory, `monitor.toml` those of a
monitor. All models read the same.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
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
    can_call: bool = True,
    can_report: bool = False,
    has_subordinates: bool = False,
    output: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    r"""Return what an agent's model reads before the agent's own prompt.

    Args:
        name: The agent's name.
        description: Its purpose, which is quoted; a line about it is left out if it has none.
        can_call: Whether its model can call tools.
        can_report: Whether it has the tool `report`.
        has_subordinates: Whether it has any.
        output: JSON Schema of its answers, if they have one.
        texts: Texts in place of the library's, by the names in `GUIDANCE_PARTS`; they stay as they
            are, and an empty one leaves its part out.

    Examples:
        >>> print(build_guidance("hotels", "Finds rooms for $5 {a night}").split("\n\n")[0])
        You are hotels, an agent in a team of agents.
        What you are for: "Finds rooms for $5 {a night}"
    """
    values = {"name": name}
    if description:
        values["description"] = json.dumps(description, ensure_ascii=False)
    if output is not None:
        values["schema"] = json.dumps(output, ensure_ascii=False)
    left_out = {
        "output": output is None,
        "subordinates": not has_subordinates,
        "reports": not can_report,
        "questions": not can_call,
        "results": not can_call,
    }
    parts = (part for part in GUIDANCE_PARTS if not left_out.get(part))
    shown = (
        texts[part] if part in texts else _fill_lines(_read_text(f"{part}.md"), values)
        for part in parts
    )
    return "\n\n".join(filter(None, shown))


@lru_cache(maxsize=256)
def build_notice_guidance(mark: str) -> str:
    """Return what the mark of a thread's notices means, as its model reads it."""
    return fill_text(tomllib.loads(_read_text("notices.toml"))["mark"], mark=mark)


def build_monitor_guidance(name: str, description: str, watched: str, superior: str) -> str:
    """Return what a monitor's model reads before the monitor's own prompt.

    Args:
        name: Path of the monitor.
        description: Its purpose, which is quoted; a line about it is left out if it has none.
        watched: Path of the agent that it watches with all below it.
        superior: Path of its superior.
    """
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
