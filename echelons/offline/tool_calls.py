"""Chooses the tools that a task names, and takes their arguments from it; no value is made up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from itertools import chain
from typing import Any, Final

from echelons.delegation.contract import DelegationTool
from echelons.offline import lexicon as lex
from echelons.offline.lexicon import QUESTION_OPENERS, to_word_set
from echelons.offline.team import GENERIC_STEMS, TeamIndex, parse_team
from echelons.offline.turn import TaskContext
from echelons.offline.values import (
    MomentKind,
    PlaceName,
    PlaceRole,
    find_number,
    find_place_names,
    find_when,
)
from echelons.offline.words import TokenizedText, mark_requested, split_clauses
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


MAX_TERM_WORDS: Final = 3
"""Words of a search term at most; with more of them, there is none at all."""

_EMPTY_WORDS: Final = lex.REQUEST_VERBS.union(
    lex.MORE_VERBS, lex.NON_PLACE_WORDS, lex.SENTENCE_OPENERS
)
_PLACE_ROLES: Final = {
    ParameterKind.ORIGIN: (PlaceRole.ORIGIN,),
    ParameterKind.DESTINATION: (PlaceRole.DESTINATION, PlaceRole.PLACE),
    ParameterKind.PLACE: (PlaceRole.PLACE, PlaceRole.DESTINATION),
}
"""Roles that fit each kind of place, the best first."""

_MOMENT_KINDS: Final[dict[ParameterKind, MomentKind | None]] = {
    ParameterKind.DATE: "date",
    ParameterKind.TIME: "time",
    ParameterKind.WHEN: None,
}


@dataclass(frozen=True)
class FilledArguments:
    """The arguments that a task gives for a tool, and its required parameters without a value."""

    values: dict[str, Any]
    missing: tuple[str, ...]


def fill_arguments(
    tool: ToolSpec, context: TaskContext, trade: frozenset[str] = frozenset()
) -> FilledArguments:
    """Return the arguments of `tool` in the task and its conversation.

    The stems in `trade` are of the names of all the agent's tools; as search terms these and the
    tool's own words say nothing.
    """
    words = extract_words(f"{tool.name} {tool.summary}")
    source = _ArgumentSource(context, trade.union(map(stem, words)))
    results = {parameter.name: source.find_value(parameter) for parameter in tool.parameters}
    values = {name: value for name, value in results.items() if value is not None}
    missing = [p.name for p in tool.parameters if p.required and p.name not in values]
    return FilledArguments(values, tuple(missing))


class _ArgumentSource:
    """The task and its conversation as a source of values for one tool."""

    def __init__(self, context: TaskContext, trade: frozenset[str]) -> None:
        self._context = context
        self._trade_stems = trade
        # A requested word is no place: "Flights" in "Flights to Rome" is not where they start.
        self._requested_stems = trade.union(
            stem(word) for part in context.part for word in extract_words(part)
        )

    def find_value(self, parameter: ToolParameter) -> Any:
        """Return the value of `parameter`, or None if there is none."""
        if parameter.choices:
            # The choice whose words are requested; the only one there is, if it is needed.
            marked = zip(self._context.task.tokens, mark_requested(self._context.task), strict=True)
            stems = f" {' '.join(token.stem for token, requested in marked if requested)} "
            for choice in parameter.choices:
                words = " ".join(map(stem, extract_words(str(choice))))
                if isinstance(choice, str) and words and f" {words} " in stems:
                    return choice
            is_only = parameter.required and len(parameter.choices) == 1
            return parameter.choices[0] if is_only else None
        if parameter.type == "boolean":
            return False if parameter.required else None
        if parameter.type in ("integer", "number"):
            for text in self._select_texts(parameter):
                number = find_number(parameter.stems, text.excerpt)
                if number is not None:
                    return int(number) if number == int(number) else number
            return None
        return self._find_text(parameter) if parameter.type == "string" else None

    def _find_text(self, parameter: ToolParameter) -> str | None:
        kind = parameter.kind
        if kind is ParameterKind.FREE:
            return self._context.brief.task.strip() or None
        if kind in _PLACE_ROLES:
            return self._find_place(parameter)
        if kind is ParameterKind.SEARCH_TERM:
            terms = self._find_search_terms(parameter)
            return terms or (self._context.brief.task if parameter.required else None)
        texts = self._select_texts(parameter)
        if kind in _MOMENT_KINDS:
            moments = (find_when(text.excerpt, _MOMENT_KINDS[kind]) for text in texts)
        else:
            moments = (self._find_name(parameter, text) for text in texts)
        return next(filter(None, moments), None)

    def _find_name(self, parameter: ToolParameter, text: TokenizedText) -> str:
        """Return a name at the parameter's word ("Hotel Artemide"), or that of a venue."""
        names = self._find_names(text)
        for place in names:
            around = text.tokens[max(0, place.start - 1) : place.end + 1]
            at_word = any(token.stem in parameter.stems for token in around)
            # A name alone is the answer to our own question: "Roscioli".
            alone = (place.start, place.end) == (0, len(text.tokens))
            if (alone and parameter.required) or (place.certain and at_word):
                return place.name
        venues = (p.name for p in names if p.certain and p.role is PlaceRole.VENUE)
        return next(venues, "")

    def _select_texts(self, parameter: ToolParameter) -> tuple[TokenizedText, ...]:
        """Return the texts to search; earlier ones only for a required value."""
        return self._context.texts if parameter.required else (self._context.task,)

    def _find_place(self, parameter: ToolParameter) -> str | None:
        """Return the place that fits best; the latest text comes first.

        Within one text a place after the right preposition is preferred to one only mentioned,
        and a capitalised name to any other.
        """
        roles = _PLACE_ROLES[parameter.kind]
        ranked = [(role, certain) for certain in (True, False) for role in roles]
        if parameter.kind is not ParameterKind.ORIGIN:
            venue = [(PlaceRole.VENUE, True)] if parameter.required else []
            ranked += [(PlaceRole.MENTION, True), *venue, (PlaceRole.MENTION, False)]
        for text in self._context.texts:
            places = self._find_names(text)
            for wanted in ranked:
                for place in places:
                    if (place.role, place.certain) == wanted:
                        return place.name
        return None

    def _find_names(self, text: TokenizedText) -> list[PlaceName]:
        """Return the names in `text`; an uncertain one only if no requested word is in it."""
        return [
            place
            for place in find_place_names(text)
            if place.certain
            or self._requested_stems.isdisjoint(
                token.stem for token in text.tokens[place.start : place.end]
            )
        ]

    def _find_search_terms(self, parameter: ToolParameter) -> str | None:
        """Return what the human is looking for, or None if it is nothing in particular."""
        marked = zip(self._context.task.tokens, mark_requested(self._context.task), strict=True)
        tokens = (token for token, requested in marked if requested)
        terms = [token.raw for token in tokens if token.stem in parameter.example_stems]
        if not terms:
            terms = [
                part
                for part in self._context.part
                if not all(
                    word in _EMPTY_WORDS or stem(word) in self._trade_stems
                    for word in extract_words(part)
                )
            ]
        terms = list(dict.fromkeys(terms))
        return " ".join(terms) if 0 < len(terms) <= MAX_TERM_WORDS else None


MAX_TOOLS: Final = 5
"""Different tools called at once at most."""

_ACT_SYNONYMS: Final = tuple(
    frozenset(map(stem, to_word_set(group)))
    for group in (
        "reserve book reservation booking",
        "buy purchase order",
        "send email mail post message",
        "cancel revoke withdraw",
        "delete remove erase",
        "pay transfer refund charge",
        "create add schedule make new open",
        "update change edit set modify rename move",
        "write save store upload publish submit",
        "approve reject sign confirm",
    )
)
_ACT_STEMS: Final = frozenset().union(*_ACT_SYNONYMS)

NamedCall = tuple[str, dict[str, Any]]
NamedCalls = tuple[NamedCall, ...]


@dataclass(frozen=True)
class ToolChoice:
    """The calls of the agent's own tools; if none is possible, what `tool` lacks for one."""

    calls: NamedCalls = ()
    missing: tuple[str, ...] = ()
    tool: str = ""


def choose_tools(tools: Sequence[ToolSpec], context: TaskContext, alone: bool) -> ToolChoice:
    """Return the calls of `tools` that fit the task.

    If the agent works `alone`, calling no subordinate, a tool that only might fit is used too.
    """
    fitting = _rank_tools(tools, context, alone)
    trade = frozenset[str]().union(*(tool.name_stems for tool in tools))
    filled = [(tool, fill_arguments(tool, context, trade)) for tool in fitting]
    calls = tuple((tool.name, args.values) for tool, args in filled if not args.missing)
    if calls or not (alone or filled):
        return ToolChoice(calls)
    if not filled:
        # No tool fits: fall back to a look-up, which does no harm.
        lookups = [tool for tool in tools if not _is_acting(tool)]
        possible = [(tool, fill_arguments(tool, context, trade)) for tool in lookups]
        for tool, args in possible:
            if not args.missing:
                return ToolChoice(((tool.name, args.values),))
        filled = [pair for pair in possible if pair[1].values]
    return ToolChoice((), filled[0][1].missing, filled[0][0].name) if filled else ToolChoice()


def _rank_tools(tools: Sequence[ToolSpec], context: TaskContext, alone: bool) -> list[ToolSpec]:
    """Return the tools that the task names, the best first, without those that fit far worse."""
    stems = [tool.name_stems | tool.summary_stems for tool in tools]
    shared = Counter(chain.from_iterable(stems))
    scores = {tool.name: _score_tool(tool, shared, context, alone) for tool in tools}
    best = {
        acts: max((scores[t.name] for t in tools if _is_acting(t) is acts), default=0.0)
        for acts in (True, False)
    }
    fitting = [tool for tool in tools if scores[tool.name] > best[_is_acting(tool)] / 2]
    return sorted(fitting, key=lambda tool: -scores[tool.name])[:MAX_TOOLS]


def _score_tool(tool: ToolSpec, shared: Counter[str], context: TaskContext, alone: bool) -> float:
    """Return 2 points for each of the tool's name words in the task, 1 for each of its summary.

    A generic word such as "find" or "get" counts half a point, enough to break ties. Words that
    several tools share count nothing.
    """
    name = tool.name_stems
    distinct = frozenset(word for word in name | tool.summary_stems if shared[word] == 1)
    marked = zip(context.task.tokens, mark_requested(context.task), strict=True)
    stems = {token.stem for token, requested in marked if requested and token.is_content_word}
    stems |= {*extract_stems(" ".join(context.part))}
    by_name = distinct & name & stems
    if _is_acting(tool):
        acts = _is_act_requested(tool, distinct & name, context, alone)
        return 2.0 * max(len(by_name), 1) if acts else 0.0
    specific = 2.0 * len(by_name - GENERIC_STEMS) + 0.5 * len(by_name & GENERIC_STEMS)
    return specific + len((distinct - name) & stems)


def _is_act_requested(
    tool: ToolSpec, distinct: frozenset[str], context: TaskContext, alone: bool
) -> bool:
    """Return whether a clause requests the tool's act, by its noun, its verb or a synonym.

    In "book a flight and find a restaurant" the verb does not mean a tool that reserves tables:
    beside the verb, a clause needs another of the tool's words, or one of the part that is meant;
    if the whole task is for this agent alone, the verb suffices. A question requests no act.
    """
    name = tool.name_stems
    verbs = name & _ACT_STEMS
    verbs = verbs.union(*(group for group in _ACT_SYNONYMS if group & verbs))
    nouns = distinct - _ACT_STEMS - GENERIC_STEMS
    part = frozenset(extract_stems(" ".join(context.part)))
    subject = (name | tool.summary_stems | part) - _ACT_STEMS - GENERIC_STEMS
    task = context.task
    requested = mark_requested(task)
    for clause in split_clauses(task.tokens):
        stems = {task.tokens[i].stem for i in clause if requested[i]}
        whole = alone and not context.part
        by_verb = verbs & stems and (whole or subject & stems or len(name & stems) > 1)
        if (by_verb or nouns & stems) and task.tokens[clause.start].word not in QUESTION_OPENERS:
            return True
    # An answer to our own question, "Roscioli", need not repeat what it is for.
    return bool(nouns & (part - {token.stem for token in task.tokens}))


def _is_acting(tool: ToolSpec) -> bool:
    return bool(tool.name_stems & _ACT_STEMS)
