"""Takes the arguments for a tool from a task, by the tool's schema.

`tool_choice` uses it to see what a call would look like; no value is ever made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from echelons.language.lexicon import listed
from echelons.language.requested_words import Mark, marks
from echelons.language.tokens import Reading
from echelons.models.planner import dates
from echelons.models.planner.choice_values import choice, mentioned
from echelons.models.planner.conversation_context import Said
from echelons.models.planner.numbers import number
from echelons.models.planner.parameter_kinds import Kind, is_later, kind
from echelons.models.planner.place_names import Place, Role, enumerated, places
from echelons.models.planner.quoted_names import addressee, named
from echelons.models.planner.search_terms import wish
from echelons.models.planner.tool_parameters import Parameter
from echelons.models.planner.toolbox import Tool
from echelons.text.stemming import stem, words

MOST_CALLS: Final = 5
"""Calls of one tool at most, for places listed together."""

_SWITCHES: Final = frozenset(
    map(stem, listed("is has have with include includes only want wants need needs allow use"))
)
_PREFERRED: Final[dict[Kind, tuple[Role, ...]]] = {
    Kind.ORIGIN: (Role.ORIGIN,),
    Kind.DESTINATION: (Role.DESTINATION, Role.PLACE, Role.NEAR),
    Kind.PLACE: (Role.PLACE, Role.NEAR, Role.DESTINATION),
    Kind.NEAR: (Role.NEAR,),
}
"""Roles that fit each kind of place parameter, the best first."""

_ANYWHERE: Final = (Kind.DESTINATION, Kind.PLACE)
"""Kinds for which a place that is only mentioned may be meant."""


@dataclass(frozen=True)
class Filled:
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


def fill(tool: Tool, said: Said, trade: frozenset[str] = frozenset()) -> Filled:
    """Return the arguments of `tool` found in the task and its conversation.

    Optional parameters without a value are left out.

    Args:
        tool: The tool.
        said: The task in its conversation.
        trade: Stems of the names of all the agent's tools; as search terms these and the tool's
            own words say nothing.
    """
    own = frozenset(map(stem, words(f"{tool.name} {tool.summary}")))
    source = _Source(said, own | trade)
    values = {p.name: source.value(p) for p in tool.parameters}
    given = {name: value for name, value in values.items() if value is not None}
    missing = tuple(p.name for p in tool.parameters if p.required and p.name not in given)
    calls = () if missing else source.spread(tool.parameters, given)
    return Filled(calls, missing, tuple(given))


class _Source:
    """The task and its conversation as a source of values for one tool."""

    def __init__(self, said: Said, trade: frozenset[str]) -> None:
        self._said = said
        self._trade = trade
        # A requested word is no place: "Flights" in "Flights to Rome" is not where they start.
        self._asked = trade.union(stem(word) for part in said.part for word in words(part))

    def value(self, parameter: Parameter) -> Any:
        """Return the value of `parameter`, or None if there is none."""
        if parameter.choices:
            return choice(parameter, self._said.task)
        readers: dict[str, Callable[[Parameter], Any]] = {
            "boolean": self._switch,
            "integer": self._number,
            "number": self._number,
            "array": self._list,
            "object": self._object,
            "string": self._text,
        }
        reader = readers.get(parameter.type)
        return reader(parameter) if reader else None

    def spread(
        self, parameters: Sequence[Parameter], given: dict[str, Any]
    ) -> tuple[dict[str, Any], ...]:
        """Return the arguments of one call, or of one for each place that is listed together."""
        for parameter in parameters:
            if parameter.type == "string" and parameter.name in given and not parameter.choices:
                together = self._together(kind(parameter))
                if len(together) > 1:
                    return tuple({**given, parameter.name: name} for name in together)
        return (given,)

    def _switch(self, parameter: Parameter) -> bool | None:
        task = self._said.task
        meant = parameter.stems - _SWITCHES
        for token, mark in zip(task.tokens, marks(task), strict=True):
            if token.stem in meant:
                return mark is not Mark.REFUSED
        return False if parameter.required else None

    def _number(self, parameter: Parameter) -> int | float | None:
        for reading in self._sources(parameter):
            found = number(parameter, reading.excerpt)
            if found is not None:
                return int(found) if found == int(found) else found
        return None

    def _list(self, parameter: Parameter) -> list[Any] | None:
        item = replace(parameter.inner[0], name=parameter.name)
        if item.choices:
            return mentioned(item, self._said.task) or None
        together = self._together(kind(item)) if item.type == "string" else []
        if together:
            return list(together)
        value = self.value(replace(item, required=parameter.required))
        return None if value is None else [value]

    def _object(self, parameter: Parameter) -> dict[str, Any] | None:
        values = {inner.name: self.value(inner) for inner in parameter.inner}
        given = {name: value for name, value in values.items() if value is not None}
        lacks = any(inner.required and inner.name not in given for inner in parameter.inner)
        return None if lacks or not given else given

    def _text(self, parameter: Parameter) -> str | None:
        meant = kind(parameter)
        if meant is Kind.FREE:
            return self._whole()
        if parameter.name_words == ("to",) and (mail := addressee(self._said.task.excerpt)):
            return mail
        if meant in _PREFERRED:
            place = self._place(meant, parameter.required)
            return place[1].name if place else None
        sources = self._sources(parameter)
        if meant in (Kind.DATE, Kind.TIME, Kind.WHEN):
            return next((said for r in sources if (said := _moment(parameter, meant, r))), None)
        if meant is Kind.WISH:
            return wish(parameter, self._said, self._trade) or (
                self._whole() if parameter.required else None
            )
        return self._name(parameter, meant, sources)

    def _name(self, parameter: Parameter, meant: Kind, sources: Sequence[Reading]) -> str | None:
        for reading in sources:
            known = [place for place in places(reading) if self._fits(reading, place)]
            if found := named(parameter, meant, reading, known):
                return found
            if len(sources) > 1 and len(known) == 1 and _is_all(known[0], reading):
                return known[0].name  # the answer to our own question: "Roscioli"
        return None

    def _whole(self) -> str | None:
        """Return the task, with the earlier statement if it depends on one."""
        task, ground = self._said.brief.task, self._said.ground
        whole = f"{task}\n{ground}" if self._said.leans else task
        return whole.strip() or None

    def _sources(self, parameter: Parameter) -> tuple[Reading, ...]:
        """Return the texts to search; earlier ones only for a required or referenced value."""
        back = parameter.required or self._said.leans
        return tuple(self._said.back()) if back else (self._said.task,)

    def _together(self, meant: Kind) -> tuple[str, ...]:
        if meant not in (Kind.PLACE, Kind.DESTINATION):
            return ()
        found = self._place(meant, needed=False)
        if found is None:
            return ()
        reading, first = found
        chain = enumerated(reading.tokens, places(reading), first)
        return tuple(dict.fromkeys(place.name for place in chain))[:MOST_CALLS]

    def _place(self, meant: Kind, needed: bool) -> tuple[Reading, Place] | None:
        """Return the place that fits best, with its text; the latest text comes first.

        Within one text a place after the right preposition is preferred to one only mentioned,
        and a capitalised name to any other. A venue counts only if a place is needed.
        """
        for reading in self._said.back():
            known = [place for place in places(reading) if self._fits(reading, place)]
            for role, certain in _order(meant, needed):
                for place in known:
                    if place.role is role and place.certain is certain:
                        return reading, place
        return None

    def _fits(self, reading: Reading, place: Place) -> bool:
        return place.certain or not any(
            token.stem in self._asked for token in reading.tokens[place.start : place.end]
        )


def _is_all(place: Place, reading: Reading) -> bool:
    return place.start == 0 and place.end == len(reading.tokens)


def _order(meant: Kind, needed: bool) -> Iterator[tuple[Role, bool]]:
    for certain in (True, False):
        for role in _PREFERRED[meant]:
            yield role, certain
    if meant in _ANYWHERE:
        yield Role.MENTION, True
        if needed:
            yield Role.VENUE, True
        yield Role.MENTION, False


def _moment(parameter: Parameter, meant: Kind, reading: Reading) -> str:
    text = reading.excerpt
    if meant is Kind.DATE or (meant is Kind.WHEN and parameter.format):
        first, last = dates.edges(text)
        day = last if is_later(parameter) else first
        if not parameter.format:
            return day
        hour = dates.iso_time(dates.spoken(text, "time"))
        iso = dates.iso_date(day)
        return f"{iso}T{hour or '00:00:00'}" if iso and meant is Kind.WHEN else iso
    hour = dates.spoken(text, "time")
    if meant is Kind.TIME:
        return dates.iso_time(hour) if parameter.format else hour
    return dates.spoken(text)
