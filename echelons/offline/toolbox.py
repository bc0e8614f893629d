"""The tools of a model call, with the parameters that their JSON schemas describe.

Schemas come from anywhere: a construct without a rule is left out, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import Any, Final

from echelons.delegation.contract import DelegationTool
from echelons.offline.lexicon import to_word_set
from echelons.offline.team import GENERIC_STEMS, TeamIndex, parse_team
from echelons.text.stemming import extract_stems, extract_words, stem
from echelons.tree.names import BUILT_IN_TOOLS, CALL_SUBORDINATE, REPORT

_SECTION: Final = re.compile(r"\n[ \t]{0,40}(?:Args|Arguments|Parameters|Returns|Raises):")

_EXAMPLES: Final = re.compile(r"(?:such as|e\.g\.|for example|like)\s([^.;)\n]{1,200})")


class ParameterKind(Enum):
    """The kind of value that a string parameter takes, which says where in a task to look."""

    FREE = auto()
    """The task itself: a question, a search."""
    DATE = auto()
    TIME = auto()
    WHEN = auto()
    ORIGIN = auto()
    DESTINATION = auto()
    PLACE = auto()
    SEARCH_TERM = auto()
    """A search term of a word or two: a dish, an interest."""
    NAME = auto()
    """The name of a restaurant, a hotel or the like: "at Roscioli"."""


_KIND_WORDS: Final = {
    ParameterKind.WHEN: to_word_set("when datetime timestamp"),
    ParameterKind.DATE: to_word_set("date day days month checkin checkout weekday deadline due"),
    ParameterKind.TIME: to_word_set("time hour"),
    ParameterKind.ORIGIN: to_word_set("from origin departure source departing leaving"),
    ParameterKind.DESTINATION: to_word_set("to destination arrival dest towards arriving"),
    ParameterKind.PLACE: to_word_set(
        "place city location country where region area town airport island near around nearby "
        "neighbourhood neighborhood district village station"
    ),
    ParameterKind.SEARCH_TERM: to_word_set(
        "wish interest interests theme cuisine dish genre filter preference preferences style kind"
    ),
    ParameterKind.FREE: to_word_set(
        "question questions query queries task message text prompt request topic topics keyword "
        "keywords term terms phrase input search subject q instruction instructions what content "
        "brief title headline summary body"
    ),
}
"""Words in names of parameters, by kind; the first match counts."""


@dataclass(frozen=True)
class ToolParameter:
    """One argument that a tool takes."""

    name: str
    type: str = "string"
    required: bool = False
    choices: tuple[Any, ...] = ()
    description: str = ""

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of its name: `check_in` has two."""
        return frozenset(map(stem, extract_words(self.name)))

    @cached_property
    def example_stems(self) -> frozenset[str]:
        """The stems of the examples that its description gives."""
        examples = _EXAMPLES.search(self.description)
        return frozenset(extract_stems(examples[1])) if examples else frozenset()

    @cached_property
    def kind(self) -> ParameterKind:
        """The kind of a string parameter."""
        words = set(extract_words(self.name))
        kinds = (kind for kind, kind_words in _KIND_WORDS.items() if words & kind_words)
        return next(kinds, ParameterKind.NAME)


def read_parameters(schema: object) -> tuple[ToolParameter, ...]:
    """Return the parameters of an object schema, in order."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping):
        return ()
    required = schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list | tuple) else set()
    return tuple(
        _read_parameter(str(name), part, str(name) in needed) for name, part in properties.items()
    )


def _read_parameter(name: str, written: object, required: bool) -> ToolParameter:
    schema = written if isinstance(written, Mapping) else {}
    description = str(schema.get("description") or "")
    options = schema.get("anyOf")
    if isinstance(options, list | tuple):  # a union counts as its first option that is not null
        options = [option for option in options if isinstance(option, Mapping)]
        schema = next((option for option in options if option.get("type") != "null"), {})
    kind = schema.get("type", "object" if "$ref" in schema else "string")
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    return ToolParameter(
        name=name,
        type=kind if isinstance(kind, str) else "string",
        required=required,
        choices=tuple(choices) if isinstance(choices, list | tuple) else (),
        description=description,
    )


@dataclass(frozen=True)
class ToolSpec:
    """A tool of the agent's own."""

    name: str
    summary: str = ""
    """The description before its sections on arguments and results."""
    parameters: tuple[ToolParameter, ...] = ()

    @classmethod
    def from_openai(cls, schema: object) -> ToolSpec | None:
        """Return the tool for OpenAI's format; None if `schema` is no function with a name."""
        function = schema.get("function", schema) if isinstance(schema, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return None
        summary = _SECTION.split(str(function.get("description") or ""), maxsplit=1)[0]
        return cls(function["name"], summary, read_parameters(function.get("parameters")))

    @cached_property
    def name_stems(self) -> frozenset[str]:
        """The stems of the words of its name."""
        return frozenset(extract_stems(self.name))

    @cached_property
    def summary_stems(self) -> frozenset[str]:
        """The stems of its summary that say something."""
        return frozenset(extract_stems(self.summary)) - GENERIC_STEMS


@dataclass(frozen=True)
class Toolbox:
    """The tools of one model call, by purpose; with `can_report`, the agent has a superior."""

    team: TeamIndex
    own_tools: tuple[ToolSpec, ...] = ()
    can_report: bool = False
    typed: Mapping[str, ToolSpec] = field(default_factory=dict)
    """The tools that are named after a subordinate, by its name."""

    @classmethod
    def from_tools(cls, schemas: Iterable[Any]) -> Toolbox:
        """Return the toolbox of `schemas`; invalid ones and repeated names are skipped."""
        tools: dict[str, ToolSpec] = {}
        roster = ""
        for schema in schemas:
            tool = ToolSpec.from_openai(schema)
            if isinstance(schema, DelegationTool):
                roster = schema.roster
            if tool is not None:
                tools.setdefault(tool.name, tool)
        team = TeamIndex(())
        if delegate := tools.get(CALL_SUBORDINATE):
            choices = next((p.choices for p in delegate.parameters if p.name == "subordinate"), ())
            names = tuple(name for name in choices if isinstance(name, str))
            team = parse_team(roster or delegate.summary, names)
        typed = {name: tools[name] for name in team.names if name in tools}
        taken = BUILT_IN_TOOLS | typed.keys()
        own_tools = tuple(tool for tool in tools.values() if tool.name not in taken)
        return cls(team, own_tools, REPORT in tools, typed)
