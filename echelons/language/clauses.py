"""Clause boundaries: where one statement of a sentence ends and the next begins.

`word_marks` uses them: a "no" or an "already" applies to its own clause only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from echelons.language import lexicon as lex
from echelons.language.tokens import Token

_CLAUSE_STOPS: Final = ",;!?\n()…\N{EN DASH}\N{EM DASH}"


def has_stop_before(token: Token) -> bool:
    """Return whether punctuation between `token` and the word before it ends a clause."""
    gap = token.gap
    if gap in ("", " ", ",", "."):  # a comma or full stop without a space is inside a number
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
    return [range(start, end) for start, end in pairwise([*starts, len(tokens)])]


def _is_clause_start(tokens: Sequence[Token], i: int) -> bool:
    if has_stop_before(tokens[i]):
        return True
    word = tokens[i].word
    following = next((t.word for t in tokens[i + 1 : i + 4] if t.word not in lex.FILLERS), "")
    if word in ("and", "or"):
        return following in lex.AND_CLAUSE_OPENERS
    if word in ("just", "only"):
        return tokens[i - 1].word not in lex.AFTER_SUBJECT
    if word in lex.REQUEST_VERBS:  # a missing comma: "... find us a museum"
        return following in ("me", "us")
    return word in lex.CONNECTIVES
