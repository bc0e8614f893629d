"""Finds search terms of a word or two; `arguments` uses it for parameters such as a dish."""

from __future__ import annotations

from typing import Final

from echelons.language import lexicon as lex
from echelons.language.team_index import GENERIC_STEMS
from echelons.language.tokens import Token
from echelons.language.word_marks import WordMark, mark_words
from echelons.models.planner.conversation_context import TaskContext
from echelons.models.planner.dates import find_moments
from echelons.models.planner.place_names import find_place_names
from echelons.models.planner.quoted_names import find_examples
from echelons.models.planner.tool_parameters import ToolParameter
from echelons.text.stemming import extract_words, stem

MAX_TERM_WORDS: Final = 3
"""Words of a search term at most; with more of them, none is given at all."""

_EMPTY_WORDS: Final = (
    lex.REQUEST_VERBS
    | lex.MORE_VERBS
    | lex.NON_PLACE_WORDS
    | lex.SENTENCE_OPENERS
    | lex.TOTALITY_WORDS
    | lex.PRAISE_WORDS
    | lex.COMPANION_WORDS
    | lex.PROXIMITY_WORDS
)


def find_search_terms(
    parameter: ToolParameter, said: TaskContext, trade: frozenset[str]
) -> str | None:
    """Return what the human is looking for, or None if it is nothing in particular.

    Args:
        parameter: The parameter; examples in its description are recognised first.
        said: The task in its conversation.
        trade: Stems that say no more than what the tool does anyway.
    """
    if known := find_examples(parameter, said.task):
        return " ".join(known)
    if said.part:
        meant = [part for part in said.part if not _is_trade_phrase(part, trade)]
    else:
        meant = [token.word for token in _find_content_words(said) if token.stem not in trade]
    meant = list(dict.fromkeys(meant))
    return " ".join(meant) if 0 < len(meant) <= MAX_TERM_WORDS else None


def _is_trade_phrase(phrase: str, trade: frozenset[str]) -> bool:
    return all(word in _EMPTY_WORDS or stem(word) in trade for word in extract_words(phrase))


def _find_content_words(said: TaskContext) -> list[Token]:
    """Return the requested content words that are no place, date, number or generic word."""
    reading = said.task
    named = {i for place in find_place_names(reading) for i in range(place.start, place.end)}
    dated = [(moment.start, moment.end) for moment in find_moments(reading.excerpt)]
    return [
        token
        for i, (token, mark) in enumerate(zip(reading.tokens, mark_words(reading), strict=True))
        if mark is WordMark.REQUESTED
        and token.is_content_word
        and i not in named
        and token.raw.isalpha()
        and token.word not in _EMPTY_WORDS
        and token.stem not in GENERIC_STEMS
        and not any(start < token.end and token.start < end for start, end in dated)
    ]
