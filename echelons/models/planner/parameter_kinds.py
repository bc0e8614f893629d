"""Classifies the string parameters of tools, by name first and then by description.

`arguments` decides by the kind where in a task to look for the value.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from echelons.language.lexicon import listed
from echelons.models.planner.tool_parameters import Parameter
from echelons.text.stemming import words


class Kind(Enum):
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
    WISH = auto()
    """A search term of a word or two: a dish, an interest."""
    OTHER = auto()


_DATES: Final = listed("date day days month dates checkin checkout weekday deadline due")
_TIMES: Final = listed("time hour")
_WHENS: Final = listed("when datetime timestamp")
_EDGES: Final = listed("start end begin until till since from to arrival departure check return")
_ORIGINS: Final = listed("from origin departure source depart departing leaving src")
_DESTINATIONS: Final = listed("to destination arrival dest towards arrive arriving")
_PLACES: Final = listed(
    "place city location where country region area town airport island neighbourhood neighborhood "
    "district village station places cities locations countries regions"
)
_NEARS: Final = listed("near around nearby")
_FREE: Final = listed(
    "question questions query queries task message text prompt request topic topics keyword "
    "keywords term terms phrase input search subject q instruction instructions what content "
    "brief title headline summary body"
)
_WISHES: Final = listed(
    "wish wishes interest interests theme cuisine dish genre filter preference preferences style"
)
_VENUES: Final = listed(
    "restaurant hotel venue museum theatre theater cafe bar shop store club gallery event"
)
_PERSONS: Final = listed(
    "customer client person guest employee author artist user member manager supplier vendor "
    "colleague company firm organisation organization recipient sender patient student"
)
_LATER: Final = listed("end until till to return checkout out inbound last latest before")
_ADDRESSES: Final = listed("email mail url uri link website")
_HEAD: Final = re.compile(r"[^.,;:()\n]{0,80}")
_HEAD_ENDS: Final = listed("in for at with that which who when where of to from on by if")


def kind(parameter: Parameter) -> Kind:
    """Return the kind of a string parameter.

    >>> kind(Parameter("departure_date")).name, kind(Parameter("departure_city")).name
    ('DATE', 'ORIGIN')
    >>> kind(Parameter("b", description="Arrival airport, as a name")).name
    'DESTINATION'
    """
    if parameter.format in ("date", "date-time", "time"):
        return {"date": Kind.DATE, "time": Kind.TIME}.get(parameter.format, Kind.WHEN)
    if parameter.format in ("email", "uri", "url"):
        return Kind.ADDRESS
    about = words(parameter.description)
    by_name = _of(parameter.name_words)
    if _EDGES.intersection(parameter.name_words) and (_DATES | _TIMES).intersection(about):
        return Kind.DATE if _DATES.intersection(about) else Kind.TIME
    if by_name is Kind.OTHER and about[:1] == ["what"]:
        return Kind.WISH
    if by_name is Kind.OTHER or _ADDRESSES.intersection(about[:8]):
        by_head = _of(_head(parameter.description))
        return by_head if by_name is Kind.OTHER or by_head is Kind.ADDRESS else by_name
    return by_name


def is_later(parameter: Parameter) -> bool:
    """Return whether a date parameter is the end of a range: `return_date`, `check_out`."""
    return bool(_LATER.intersection(parameter.name_words))


def _head(description: str) -> list[str]:
    """Return the words of a description's head noun phrase, before any qualification."""
    found = _HEAD.match(description)
    said = words(found[0] if found else "")
    if "name" in said[:2] and "of" in said[:4]:
        said = said[said.index("of") + 1 :]
    head: list[str] = []
    for word in said:
        if head and word in _HEAD_ENDS:
            break
        head.append(word)
    return head


def _of(name: tuple[str, ...] | list[str]) -> Kind:
    said = set(name)
    both = said & _DATES and said & _TIMES
    tests = (
        (Kind.ADDRESS, said & _ADDRESSES),
        (Kind.WHEN, said & _WHENS or both),
        (Kind.DATE, said & _DATES or said in ({"check", "in"}, {"check", "out"})),
        (Kind.TIME, said & _TIMES),
        (Kind.ORIGIN, said & _ORIGINS),
        (Kind.DESTINATION, said & _DESTINATIONS),
        (Kind.NEAR, said & _NEARS),
        (Kind.PLACE, said & _PLACES),
        (Kind.DATE, said in ({"start"}, {"end"}, {"until"})),
        (Kind.WISH, said & _WISHES),
        (Kind.FREE, said & _FREE),
        (Kind.VENUE, said & _VENUES),
        (Kind.PERSON, said & _PERSONS),
    )
    return next((found for found, holds in tests if holds), Kind.OTHER)
