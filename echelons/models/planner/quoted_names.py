"""Finds names in a text: addresses, venues, people, quoted titles, given examples.

`arguments` uses it for text parameters that are no place, no date and no question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from echelons.language.tokens import TokenizedText
from echelons.language.word_marks import mark_words
from echelons.models.planner.parameter_kinds import ParameterKind
from echelons.models.planner.place_names import PlaceName, PlaceRole
from echelons.models.planner.tool_parameters import ToolParameter
from echelons.text.stemming import STOPWORDS, extract_words, stem

_KIND_ROLES: Final = {
    ParameterKind.VENUE: (PlaceRole.VENUE,),
    ParameterKind.PERSON: (PlaceRole.MENTION, PlaceRole.NEAR, PlaceRole.VENUE),
}
"""Roles of venues' and people's names: "at Roscioli", "does Bob", "of Bob"."""

_EMAIL: Final = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_LINK: Final = re.compile(r"https?://[^\s<>\"']{1,2000}")
_QUOTED: Final = re.compile(
    r'"([^"\n]{1,200})"|\N{LEFT DOUBLE QUOTATION MARK}'
    r"([^\n\N{RIGHT DOUBLE QUOTATION MARK}]{1,200})\N{RIGHT DOUBLE QUOTATION MARK}"
)
_EXAMPLES: Final = re.compile(
    r"(?:such as|e\.g\.|for example|for instance|like)\s([^.;)\n]{1,200})"
)


def find_name(
    parameter: ToolParameter,
    kind: ParameterKind,
    reading: TokenizedText,
    known: Sequence[PlaceName],
) -> str | None:
    """Return the name that `reading` gives for `parameter`, or None.

    Args:
        parameter: The parameter.
        kind: Its kind.
        reading: A text of the human's.
        known: The names in that text, without the tool's own words.
    """
    text = reading.excerpt
    if kind is ParameterKind.ADDRESS:
        return _find_address(parameter, text)
    if stated := _find_stated_value(parameter, text):
        return stated
    if name := _find_matching_name(parameter, kind, reading, known):
        return name
    if parameter.required and (quoted := _QUOTED.search(text)):
        return quoted[1] or quoted[2]
    return next(iter(find_examples(parameter, reading)), None)


def find_email_address(text: str) -> str | None:
    """Return the first e-mail address in `text`, or None."""
    found = _EMAIL.search(text)
    return found[0] if found else None


def _find_address(parameter: ToolParameter, text: str) -> str | None:
    link = _LINK.search(text)
    by_link = link[0] if link else None
    return by_link if parameter.format in ("uri", "url") else find_email_address(text) or by_link


def _find_stated_value(parameter: ToolParameter, text: str) -> str | None:
    """Return the value stated with the parameter's name, as in "dish: carbonara", or None."""
    name = r"[\s_-]".join(map(re.escape, parameter.name_words))
    if not name:
        return None
    found = re.search(rf"(?<!\w){name}\s?[:=]\s?([^,;\n]{{1,200}})", text, re.IGNORECASE)
    return found[1].strip() or None if found else None


def _find_matching_name(
    parameter: ToolParameter,
    kind: ParameterKind,
    reading: TokenizedText,
    known: Sequence[PlaceName],
) -> str | None:
    """Return a name beside the parameter's ("Hotel Artemide") or in a role of its kind."""
    for place in known:
        if _is_beside_parameter(place, parameter, reading) or _has_parameter_word(
            place, parameter, reading
        ):
            return place.name
    roles = _KIND_ROLES.get(kind, ())
    fitting = (place for role in roles for place in known if place.role is role and place.certain)
    return next((place.name for place in fitting), None)


def _is_beside_parameter(
    place: PlaceName, parameter: ToolParameter, reading: TokenizedText
) -> bool:
    tokens = reading.tokens
    beside = [*tokens[max(0, place.start - 1) : place.start], *tokens[place.end : place.end + 1]]
    gaps = [*tokens[place.start : place.start + 1], *tokens[place.end : place.end + 1]]
    return place.certain and any(
        token.stem in parameter.stems and gap.gap == " "
        for token, gap in zip(beside, gaps[-len(beside) :], strict=False)
    )


def _has_parameter_word(place: PlaceName, parameter: ToolParameter, reading: TokenizedText) -> bool:
    inside = reading.tokens[place.start : place.end]
    return len(inside) > 1 and any(token.stem in parameter.stems for token in inside)


def find_examples(parameter: ToolParameter, reading: TokenizedText) -> tuple[str, ...]:
    """Return the words of `reading` that the parameter's description gives as examples."""
    found = _EXAMPLES.search(parameter.description)
    if not found:
        return ()
    given = {stem(word) for word in extract_words(found[1]) if word not in STOPWORDS}
    said = zip(reading.tokens, mark_words(reading), strict=True)
    return tuple(dict.fromkeys(token.raw for token, mark in said if mark and token.stem in given))
