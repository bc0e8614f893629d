"""Classifies the string parameters of tools, by name first and then by description.

`arguments` decides by the kind where in a task to look for the value.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from echelons.language.lexicon import to_word_set
from echelons.models.planner.tool_parameters import ToolParameter
from echelons.text.stemming import extract_words


class ParameterKind(Enum):
    """The kind of value that a string parameter takes."""

    FREE = auto()
    """The task itself: a question, a search."""
    DATE = auto()
    TIME = auto()
    WHEN = auto()
    ORIGIN = auto()
    DESTINATION = auto()
    PLACE = auto()
    NEAR = auto()
    ADDRESS = auto()
    """An e-mail or web address."""
    VENUE = auto()
    """The name of a restaurant, hotel or the like: "at Roscioli"."""
    PERSON = auto()
    """The name of a person or a company: "for Anna Schmidt"."""
    SEARCH_TERM = auto()
    """A search term of a word or two: a dish, an interest."""
    OTHER = auto()


_DATES: Final = to_word_set("date day days month dates checkin checkout weekday deadline due")
_TIMES: Final = to_word_set("time hour")
_WHENS: Final = to_word_set("when datetime timestamp")
_EDGES: Final = to_word_set(
    "start end begin until till since from to arrival departure check return"
)
_KIND_WORDS: Final = {
    ParameterKind.ORIGIN: to_word_set("from origin departure source depart departing leaving src"),
    ParameterKind.DESTINATION: to_word_set("to destination arrival dest towards arrive arriving"),
    ParameterKind.NEAR: to_word_set("near around nearby"),
    ParameterKind.PLACE: to_word_set(
        "place city location where country region area town airport island neighbourhood "
        "neighborhood district village station places cities locations countries regions"
    ),
    ParameterKind.SEARCH_TERM: to_word_set(
        "wish wishes interest interests theme cuisine dish genre filter preference preferences "
        "style"
    ),
    ParameterKind.FREE: to_word_set(
        "question questions query queries task message text prompt request topic topics keyword "
        "keywords term terms phrase input search subject q instruction instructions what content "
        "brief title headline summary body"
    ),
    ParameterKind.VENUE: to_word_set(
        "restaurant hotel venue museum theatre theater cafe bar shop store club gallery event"
    ),
    ParameterKind.PERSON: to_word_set(
        "customer client person guest employee author artist user member manager supplier vendor "
        "colleague company firm organisation organization recipient sender patient student"
    ),
}
"""Words in names of other kinds than dates, times and addresses; the first match counts."""

_DATE_NAMES: Final = ({"check", "in"}, {"check", "out"}, {"start"}, {"end"}, {"until"})
_RANGE_ENDS: Final = to_word_set("end until till to return checkout out inbound last latest before")
_ADDRESSES: Final = to_word_set("email mail url uri link website")
_HEAD_ENDS: Final = to_word_set("in for at with that which who when where of to from on by if")


def classify_parameter(parameter: ToolParameter) -> ParameterKind:
    """Return the kind of a string parameter.

    >>> classify_parameter(ToolParameter("departure_date")).name
    'DATE'
    >>> classify_parameter(ToolParameter("departure_city")).name
    'ORIGIN'
    >>> classify_parameter(ToolParameter("b", description="Arrival airport, as a name")).name
    'DESTINATION'
    """
    if parameter.format in ("date", "date-time", "time"):
        kinds = {"date": ParameterKind.DATE, "time": ParameterKind.TIME}
        return kinds.get(parameter.format, ParameterKind.WHEN)
    if parameter.format in ("email", "uri", "url"):
        return ParameterKind.ADDRESS
    about = extract_words(parameter.description)
    by_name = _classify_words(parameter.name_words)
    if _EDGES.intersection(parameter.name_words) and (_DATES | _TIMES).intersection(about):
        return ParameterKind.DATE if _DATES.intersection(about) else ParameterKind.TIME
    if by_name is ParameterKind.OTHER and about[:1] == ["what"]:
        return ParameterKind.SEARCH_TERM
    if by_name is ParameterKind.OTHER or _ADDRESSES.intersection(about[:8]):
        by_head = _classify_words(_extract_head(parameter.description))
        if by_name is ParameterKind.OTHER or by_head is ParameterKind.ADDRESS:
            return by_head
    return by_name


def is_range_end(parameter: ToolParameter) -> bool:
    """Return whether a date parameter is the end of a range: `return_date`, `check_out`."""
    return bool(_RANGE_ENDS.intersection(parameter.name_words))


def _extract_head(description: str) -> list[str]:
    """Return the words of a description's head noun phrase, before any qualification."""
    said = extract_words(re.split(r"[.,;:()\n]", description[:80], maxsplit=1)[0])
    if "name" in said[:2] and "of" in said[:4]:
        said = said[said.index("of") + 1 :]
    end = next((i for i, word in enumerate(said) if i and word in _HEAD_ENDS), len(said))
    return said[:end]


def _classify_words(name: tuple[str, ...] | list[str]) -> ParameterKind:
    said = set(name)
    if said & _ADDRESSES:
        return ParameterKind.ADDRESS
    if said & _WHENS or (said & _DATES and said & _TIMES):
        return ParameterKind.WHEN
    if said & _DATES or said in _DATE_NAMES:
        return ParameterKind.DATE
    if said & _TIMES:
        return ParameterKind.TIME
    return next((kind for kind, words in _KIND_WORDS.items() if said & words), ParameterKind.OTHER)
