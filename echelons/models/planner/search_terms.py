"""Finds search terms of a word or two; `arguments` uses it for parameters such as a dish."""

from __future__ import annotations

from typing import Final

from echelons.language import lexicon as lex
from echelons.language.requested_words import Mark, marks
from echelons.language.team_index import GENERIC
from echelons.language.tokens import Token
from echelons.models.planner.conversation_context import Said
from echelons.models.planner.dates import moments
from echelons.models.planner.place_names import places
from echelons.models.planner.quoted_names import examples
from echelons.models.planner.tool_parameters import Parameter
from echelons.text.stemming import stem, words

MOST_WORDS: Final = 3
"""Words of a search term at most; with more of them, none is given at all."""

_SAYS_NOTHING: Final = (
    lex.REQUESTS
    | lex.MORE_VERBS
    | lex.NO_PLACES
    | lex.OPENERS
    | lex.EVERYTHING
    | lex.PRAISE
    | lex.COMPANY
    | lex.BESIDE
)


def wish(parameter: Parameter, said: Said, trade: frozenset[str]) -> str | None:
    """Return what the human is looking for, or None if it is nothing in particular.

    Args:
        parameter: The parameter; examples in its description are recognised first.
        said: The task in its conversation.
        trade: Stems that say no more than what the tool does anyway.
    """
    if known := examples(parameter, said.task):
        return " ".join(known)
    if said.part:
        meant = [part for part in said.part if not _is_trade(part, trade)]
    else:
        meant = [token.word for token in _content(said) if token.stem not in trade]
    meant = list(dict.fromkeys(meant))
    return " ".join(meant) if 0 < len(meant) <= MOST_WORDS else None


def _is_trade(phrase: str, trade: frozenset[str]) -> bool:
    return all(word in _SAYS_NOTHING or stem(word) in trade for word in words(phrase))


def _content(said: Said) -> list[Token]:
    """Return the requested content words that are no place, date, number or generic word."""
    reading = said.task
    named = {i for place in places(reading) for i in range(place.start, place.end)}
    dated = [(moment.start, moment.end) for moment in moments(reading.excerpt)]
    return [
        token
        for i, (token, mark) in enumerate(zip(reading.tokens, marks(reading), strict=True))
        if mark is Mark.WISHED
        and token.telling
        and i not in named
        and token.raw.isalpha()
        and token.word not in _SAYS_NOTHING
        and token.stem not in GENERIC
        and not any(start < token.end and token.start < end for start, end in dated)
    ]
