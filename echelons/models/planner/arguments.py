"""Takes the arguments for a tool from a task, by the tool's schema.

`tool_choice` uses it to see what a call would look like; no value is ever made up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from echelons.language.lexicon import to_word_set
from echelons.language.tokens import TokenizedText
from echelons.language.word_marks import WordMark, mark_words
from echelons.models.planner import dates
from echelons.models.planner.numbers import find_number
from echelons.models.planner.parameter_kinds import ParameterKind, classify_parameter, is_range_end
from echelons.models.planner.place_names import (
    PlaceName,
    PlaceRole,
    find_listed_places,
    find_place_names,
)
from echelons.models.planner.task_context import TaskContext
from echelons.models.planner.text_values import find_email_address, find_name, find_search_terms
from echelons.models.planner.tool_parameters import ToolParameter
from echelons.models.planner.toolbox import ToolSpec
from echelons.text.stemming import extract_words, stem

MAX_CALLS: Final = 5
"""Calls of one tool at most, for places listed together."""

_SWITCH_STEMS: Final = frozenset(
    map(stem, to_word_set("is has have with include includes only want wants need needs allow use"))
)
_PREFERRED_ROLES: Final[dict[ParameterKind, tuple[PlaceRole, ...]]] = {
    ParameterKind.ORIGIN: (PlaceRole.ORIGIN,),
    ParameterKind.DESTINATION: (PlaceRole.DESTINATION, PlaceRole.PLACE, PlaceRole.NEAR),
    ParameterKind.PLACE: (PlaceRole.PLACE, PlaceRole.NEAR, PlaceRole.DESTINATION),
    ParameterKind.NEAR: (PlaceRole.NEAR,),
}
"""Roles that fit each kind of place parameter, the best first."""

_LISTED_KINDS: Final = (ParameterKind.DESTINATION, ParameterKind.PLACE)
"""Kinds for which several places may be listed, and one that is only mentioned may be meant."""


@dataclass(frozen=True)
class FilledArguments:
    """The arguments that a task gives for a tool.

    Attributes:
        calls: The arguments of each call; more than one if the task lists several places.
            Empty if a required argument is missing.
        missing: Names of required parameters without a value.
        given: Names of the parameters with a value.
    """

    calls: tuple[dict[str, Any], ...]
    missing: tuple[str, ...]
    given: tuple[str, ...]


def fill_arguments(
    tool: ToolSpec, said: TaskContext, trade: frozenset[str] = frozenset()
) -> FilledArguments:
    """Return the arguments of `tool` found in the task and its conversation.

    Optional parameters without a value are left out. The stems in `trade` are of the names of all
    the agent's tools; as search terms these and the tool's own words say nothing.
    """
    own = frozenset(map(stem, extract_words(f"{tool.name} {tool.summary}")))
    source = _ArgumentSource(said, own | trade)
    values = {p.name: source.find_value(p) for p in tool.parameters}
    given = {name: value for name, value in values.items() if value is not None}
    missing = tuple(p.name for p in tool.parameters if p.required and p.name not in given)
    calls = () if missing else source.build_calls(tool.parameters, given)
    return FilledArguments(calls, missing, tuple(given))


class _ArgumentSource:
    """The task and its conversation as a source of values for one tool."""

    def __init__(self, said: TaskContext, trade: frozenset[str]) -> None:
        self._said = said
        self._trade_stems = trade
        # A requested word is no place: "Flights" in "Flights to Rome" is not where they start.
        self._requested_stems = trade.union(
            stem(word) for part in said.part for word in extract_words(part)
        )

    def find_value(self, parameter: ToolParameter) -> Any:
        """Return the value of `parameter`, or None if there is none."""
        if parameter.choices:
            only = parameter.choices if parameter.required and len(parameter.choices) == 1 else ()
            return next(iter(_find_choices(parameter, self._said.task) or only), None)
        readers: dict[str, Callable[[ToolParameter], Any]] = {
            "boolean": self._find_switch,
            "integer": self._find_number,
            "number": self._find_number,
            "array": self._find_list,
            "object": self._find_object,
            "string": self._find_text,
        }
        reader = readers.get(parameter.type)
        return reader(parameter) if reader else None

    def build_calls(
        self, parameters: Sequence[ToolParameter], given: dict[str, Any]
    ) -> tuple[dict[str, Any], ...]:
        """Return the arguments of one call, or of one for each place that is listed together."""
        for parameter in parameters:
            if parameter.name in given and not parameter.choices:
                together = self._find_listed_places(parameter)
                if len(together) > 1:
                    return tuple({**given, parameter.name: name} for name in together)
        return (given,)

    def _find_switch(self, parameter: ToolParameter) -> bool | None:
        task = self._said.task
        meant = parameter.stems - _SWITCH_STEMS
        for token, mark in zip(task.tokens, mark_words(task), strict=True):
            if token.stem in meant:
                return mark is not WordMark.REFUSED
        return False if parameter.required else None

    def _find_number(self, parameter: ToolParameter) -> int | float | None:
        for reading in self._select_readings(parameter):
            found = find_number(parameter, reading.excerpt)
            if found is not None:
                return int(found) if found == int(found) else found
        return None

    def _find_list(self, parameter: ToolParameter) -> list[Any] | None:
        item = replace(parameter.inner[0], name=parameter.name)
        if item.choices:
            return _find_choices(item, self._said.task) or None
        if together := self._find_listed_places(item):
            return list(together)
        value = self.find_value(replace(item, required=parameter.required))
        return None if value is None else [value]

    def _find_object(self, parameter: ToolParameter) -> dict[str, Any] | None:
        values = {inner.name: self.find_value(inner) for inner in parameter.inner}
        given = {name: value for name, value in values.items() if value is not None}
        lacks = any(inner.required and inner.name not in given for inner in parameter.inner)
        return None if lacks or not given else given

    def _find_text(self, parameter: ToolParameter) -> str | None:
        meant = classify_parameter(parameter)
        if meant is ParameterKind.FREE:
            return self._build_whole_task()
        text = self._said.task.excerpt
        if parameter.name_words == ("to",) and (mail := find_email_address(text)):
            return mail
        if meant in _PREFERRED_ROLES:
            place = self._find_place(meant, parameter.required)
            return place[1].name if place else None
        sources = self._select_readings(parameter)
        if meant in (ParameterKind.DATE, ParameterKind.TIME, ParameterKind.WHEN):
            moments = (_find_moment(parameter, meant, reading) for reading in sources)
            return next(filter(None, moments), None)
        if meant is ParameterKind.SEARCH_TERM:
            terms = find_search_terms(parameter, self._said, self._trade_stems)
            return self._build_whole_task() if parameter.required and not terms else terms
        return self._find_name(parameter, meant, sources)

    def _find_name(
        self, parameter: ToolParameter, meant: ParameterKind, sources: Sequence[TokenizedText]
    ) -> str | None:
        for reading in sources:
            known = self._find_known_places(reading)
            if found := find_name(parameter, meant, reading, known):
                return found
            spans = [(place.start, place.end) for place in known]
            if len(sources) > 1 and spans == [(0, len(reading.tokens))]:
                return known[0].name  # the answer to our own question: "Roscioli"
        return None

    def _build_whole_task(self) -> str | None:
        """Return the task, with the earlier statement if it depends on one."""
        task, ground = self._said.brief.task, self._said.background
        whole = f"{task}\n{ground}" if self._said.depends_on_earlier else task
        return whole.strip() or None

    def _select_readings(self, parameter: ToolParameter) -> tuple[TokenizedText, ...]:
        """Return the texts to search; earlier ones only for a required or referenced value."""
        back = parameter.required or self._said.depends_on_earlier
        return tuple(self._said.iterate_readings()) if back else (self._said.task,)

    def _find_listed_places(self, parameter: ToolParameter) -> tuple[str, ...]:
        kind = classify_parameter(parameter) if parameter.type == "string" else ParameterKind.OTHER
        found = self._find_place(kind, needed=False) if kind in _LISTED_KINDS else None
        if found is None:
            return ()
        reading, first = found
        chain = find_listed_places(reading.tokens, find_place_names(reading), first)
        return tuple(dict.fromkeys(place.name for place in chain))[:MAX_CALLS]

    def _find_place(
        self, meant: ParameterKind, needed: bool
    ) -> tuple[TokenizedText, PlaceName] | None:
        """Return the place that fits best, with its text; the latest text comes first.

        Within one text a place after the right preposition is preferred to one only mentioned,
        and a capitalised name to any other. A venue counts only if a place is needed.
        """
        ranked = [(role, certain) for certain in (True, False) for role in _PREFERRED_ROLES[meant]]
        if meant in _LISTED_KINDS:
            venue = [(PlaceRole.VENUE, True)] if needed else []
            ranked += [(PlaceRole.MENTION, True), *venue, (PlaceRole.MENTION, False)]
        for reading in self._said.iterate_readings():
            known = self._find_known_places(reading)
            for wanted in ranked:
                for place in known:
                    if (place.role, place.certain) == wanted:
                        return reading, place
        return None

    def _find_known_places(self, reading: TokenizedText) -> list[PlaceName]:
        """Return the places of `reading`; an uncertain one only if no requested word is in it."""
        return [
            place
            for place in find_place_names(reading)
            if place.certain
            or self._requested_stems.isdisjoint(
                token.stem for token in reading.tokens[place.start : place.end]
            )
        ]


def _find_choices(parameter: ToolParameter, reading: TokenizedText) -> list[Any]:
    """Return the choices that a text mentions and does not refuse, longer ones first."""
    marked = zip(reading.tokens, mark_words(reading), strict=True)
    wished = [token.stem for token, mark in marked if mark > WordMark.REFUSED]
    found: list[tuple[int, int, Any]] = []
    for choice in parameter.choices:
        if isinstance(choice, bool) or choice is None:
            continue
        if isinstance(choice, int | float):
            if find_number(replace(parameter, choices=()), reading.excerpt) == choice:
                found.append((-1, 0, choice))
        elif sought := [stem(word) for word in extract_words(str(choice))]:
            size = len(sought)
            starts = range(len(wished) - size + 1)
            at = [i for i in starts if wished[i : i + size] == sought]
            found += [(-size, i, choice) for i in at[:1]]
    return [choice for _, _, choice in sorted(found, key=lambda each: each[:2])]


def _find_moment(parameter: ToolParameter, meant: ParameterKind, reading: TokenizedText) -> str:
    text = reading.excerpt
    if meant is ParameterKind.DATE or (meant is ParameterKind.WHEN and parameter.format):
        first, last = dates.find_date_range(text)
        day = last if is_range_end(parameter) else first
        if not parameter.format:
            return day
        hour = dates.to_iso_time(dates.find_when(text, "time"))
        iso = dates.to_iso_date(day)
        return f"{iso}T{hour or '00:00:00'}" if iso and meant is ParameterKind.WHEN else iso
    hour = dates.find_when(text, "time")
    if meant is ParameterKind.TIME:
        return dates.to_iso_time(hour) if parameter.format else hour
    return dates.find_when(text)
