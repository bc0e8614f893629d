"""Names that a text gives to a thing: addresses, houses, quoted titles, examples.

``arguments`` asks here for text parameters that are no place, no date and no question.
"""

from __future__ import annotations

import re
from typing import Final

from echelons.matching import STOPWORDS, stem, words
from echelons.models.planner.kinds import Kind
from echelons.models.planner.places import Place, Role, places
from echelons.models.planner.reading import Reading
from echelons.models.planner.schema import Parameter
from echelons.models.planner.wishes import marks

_EMAIL: Final = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_LINK: Final = re.compile(r"https?://[^\s<>\"']{1,2000}")
_QUOTED: Final = re.compile(
    r'"([^"\n]{1,200})"|\N{LEFT DOUBLE QUOTATION MARK}'
    r"([^\n\N{RIGHT DOUBLE QUOTATION MARK}]{1,200})\N{RIGHT DOUBLE QUOTATION MARK}"
)
_EXAMPLES: Final = re.compile(
    r"(?:such as|e\.g\.|for example|for instance|like)\s([^.;)\n]{1,200})"
)


def named(parameter: Parameter, kind: Kind, reading: Reading) -> str | None:
    """The name that ``reading`` gives for ``parameter``, or None if it gives none."""
    text = reading.excerpt
    if kind is Kind.ADDRESS:
        found = (_LINK if parameter.format in ("uri", "url") else _EMAIL).search(text)
        found = found or _LINK.search(text)
        return found[0] if found else None
    if stated := _stated(parameter, text):
        return stated
    if house := _house(parameter, kind, reading):
        return house
    if parameter.required and (quoted := _QUOTED.search(text)):
        return quoted[1] or quoted[2]
    return next(iter(examples(parameter, reading)), None)


def _stated(parameter: Parameter, text: str) -> str | None:
    """What the text says by the parameter's name: "dish: carbonara"."""
    name = r"[\s_-]".join(map(re.escape, parameter.name_words))
    if not name:
        return None
    found = re.search(rf"(?<!\w){name}\s?[:=]\s?([^,;\n]{{1,200}})", text, re.IGNORECASE)
    return found[1].strip() or None if found else None


def _house(parameter: Parameter, kind: Kind, reading: Reading) -> str | None:
    """A name beside the parameter's, "Hotel Artemide"; for a house also "at Artemide"."""
    found = places(reading)
    for place in found:
        if _stands_beside(place, parameter, reading) or _holds(place, parameter, reading):
            return place.name
    if kind is not Kind.VENUE:
        return None
    return next((place.name for place in found if place.role is Role.VENUE), None)


def _stands_beside(place: Place, parameter: Parameter, reading: Reading) -> bool:
    tokens = reading.tokens
    beside = [*tokens[max(0, place.start - 1) : place.start], *tokens[place.end : place.end + 1]]
    gaps = [*tokens[place.start : place.start + 1], *tokens[place.end : place.end + 1]]
    return place.certain and any(
        token.stem in parameter.stems and gap.gap == " "
        for token, gap in zip(beside, gaps[-len(beside) :], strict=False)
    )


def _holds(place: Place, parameter: Parameter, reading: Reading) -> bool:
    inside = reading.tokens[place.start : place.end]
    return len(inside) > 1 and any(token.stem in parameter.stems for token in inside)


def examples(parameter: Parameter, reading: Reading) -> tuple[str, ...]:
    """The words of ``reading`` that the parameter's description gives as examples."""
    found = _EXAMPLES.search(parameter.description)
    if not found:
        return ()
    given = {stem(word) for word in words(found[1]) if word not in STOPWORDS}
    said = zip(reading.tokens, marks(reading), strict=True)
    return tuple(dict.fromkeys(token.raw for token, mark in said if mark and token.stem in given))
