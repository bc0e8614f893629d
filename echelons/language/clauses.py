"""Clause boundaries: where one statement of a sentence ends and the next begins.

`requested_words` uses them: a "no" or an "already" applies to its own clause only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from echelons.language.lexicon import (
    AFTER_SUBJECT,
    AUXILIARIES,
    CONNECTIVES,
    FILLERS,
    REQUEST_VERBS,
    SUBJECT_WORDS,
)
from echelons.language.tokens import Token

_CLAUSE_STOPS: Final = ",;!?\n()…\N{EN DASH}\N{EM DASH}"


def has_stop_before(token: Token) -> bool:
    """Return whether punctuation between `token` and the word before it ends a clause."""
    gap = token.gap
    if not gap or gap == " ":
        return False
    if gap in (",", "."):  # inside a number
        return False
    return any(stop in gap for stop in _CLAUSE_STOPS) or ". " in gap or " - " in gap


def split_clauses(tokens: Sequence[Token]) -> list[range]:
    """Return the clauses of `tokens` as index ranges that together cover all tokens.

    >>> from echelons.language.tokens import TokenizedText
    >>> said = TokenizedText("We have rooms and flights, so find a museum and book a tour").tokens
    >>> [" ".join(said[i].word for i in clause) for clause in split_clauses(said)]
    ['we have rooms and flights', 'so find a museum', 'and book a tour']
    """
    starts = [i for i in range(len(tokens)) if i == 0 or _is_clause_start(tokens, i)]
    ends = [*starts[1:], len(tokens)]
    return [range(start, end) for start, end in zip(starts, ends, strict=False)]


def _is_clause_start(tokens: Sequence[Token], i: int) -> bool:
    if has_stop_before(tokens[i]):
        return True
    word = tokens[i].word
    following = _find_next_word(tokens, i)
    if word in ("and", "or"):
        return following in REQUEST_VERBS or following in SUBJECT_WORDS or following in AUXILIARIES
    if word in ("just", "only"):
        return tokens[i - 1].word not in AFTER_SUBJECT
    if word in REQUEST_VERBS:  # a missing comma: "... find us a museum"
        return following in ("me", "us")
    return word in CONNECTIVES


def _find_next_word(tokens: Sequence[Token], i: int) -> str:
    for token in tokens[i + 1 : i + 4]:
        if token.word not in FILLERS:
            return token.word
    return ""
