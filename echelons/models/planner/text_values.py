"""Finds the values of text parameters that are no place, no date and no question.

They are names (addresses, venues, people, quoted titles), examples that a parameter's description
gives, and search terms of a word or two. `arguments` uses them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from echelons.language import lexicon as lex
from echelons.language.team_index import GENERIC_STEMS
from echelons.language.tokens import TokenizedText
from echelons.language.word_marks import WordMark, mark_words
from echelons.models.planner.dates import find_moments
from echelons.models.planner.parameter_kinds import ParameterKind
from echelons.models.planner.place_names import PlaceName, PlaceRole, find_place_names
from echelons.models.planner.task_context import TaskContext
from echelons.models.planner.tool_parameters import ToolParameter
from echelons.text.stemming import STOPWORDS, extract_words, stem

MAX_TERM_WORDS: Final = 3
"""Words of a search term at most; with more of them, none is given at all."""

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
_EMPTY_WORDS: Final = lex.REQUEST_VERBS.union(
    *(lex.MORE_VERBS, lex.NON_PLACE_WORDS, lex.SENTENCE_OPENERS, lex.TOTALITY_WORDS),
    *(lex.PRAISE_WORDS, lex.COMPANION_WORDS, lex.PROXIMITY_WORDS),
)


def find_name(
    parameter: ToolParameter,
    kind: ParameterKind,
    reading: TokenizedText,
    known: Sequence[PlaceName],
) -> str | None:
    """Return the name that `reading` gives for `parameter`, or None.

    `known` are the names in that text, without the tool's own words.
    """
    text = reading.excerpt
    if kind is ParameterKind.ADDRESS:
        link = _LINK.search(text)
        mail = None if parameter.format in ("uri", "url") else find_email_address(text)
        return mail or (link[0] if link else None)
    if stated := _find_stated_value(parameter, text):
        return stated
    if name := _find_matching_name(parameter, kind, reading, known):
        return name
    if parameter.required and (quoted := _QUOTED.search(text)):
        return quoted[1] or quoted[2]
    return next(iter(_find_examples(parameter, reading)), None)


def find_email_address(text: str) -> str | None:
    """Return the first e-mail address in `text`, or None."""
    found = _EMAIL.search(text)
    return found[0] if found else None


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
        inside = reading.tokens[place.start : place.end]
        named = len(inside) > 1 and any(token.stem in parameter.stems for token in inside)
        if named or _is_beside_parameter(place, parameter, reading):
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


def _find_examples(parameter: ToolParameter, reading: TokenizedText) -> tuple[str, ...]:
    """Return the words of `reading` that the parameter's description gives as examples."""
    found = _EXAMPLES.search(parameter.description)
    if not found:
        return ()
    given = {stem(word) for word in extract_words(found[1]) if word not in STOPWORDS}
    said = zip(reading.tokens, mark_words(reading), strict=True)
    return tuple(dict.fromkeys(token.raw for token, mark in said if mark and token.stem in given))


def find_search_terms(
    parameter: ToolParameter, said: TaskContext, trade: frozenset[str]
) -> str | None:
    """Return what the human is looking for, or None if it is nothing in particular.

    Examples in the parameter's description are recognised first. The stems in `trade` say no more
    than what the tool does anyway.
    """
    if known := _find_examples(parameter, said.task):
        return " ".join(known)
    meant = [
        part
        for part in said.part
        if not all(word in _EMPTY_WORDS or stem(word) in trade for word in extract_words(part))
    ]
    if not said.part:
        meant = _find_content_words(said.task, trade)
    meant = list(dict.fromkeys(meant))
    return " ".join(meant) if 0 < len(meant) <= MAX_TERM_WORDS else None


def _find_content_words(reading: TokenizedText, trade: frozenset[str]) -> list[str]:
    """Return the requested content words that are no place, date, number or generic word."""
    named = {i for place in find_place_names(reading) for i in range(place.start, place.end)}
    dated = [(moment.start, moment.end) for moment in find_moments(reading.excerpt)]
    return [
        token.word
        for i, (token, mark) in enumerate(zip(reading.tokens, mark_words(reading), strict=True))
        if mark is WordMark.REQUESTED
        and token.is_content_word
        and i not in named
        and token.raw.isalpha()
        and token.word not in _EMPTY_WORDS
        and token.stem not in GENERIC_STEMS
        and token.stem not in trade
        and not any(start < token.end and token.start < end for start, end in dated)
    ]
