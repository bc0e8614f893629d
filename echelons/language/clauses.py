"""Clause boundaries: where one statement of a sentence ends and the next begins.

`word_marks` uses them: a "no" or an "already" applies to its own clause only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final

from echelons.language import lexicon as lex
from echelons.language.tokens import Token

MAX_WORDS_BEFORE: Final = 40
"""Words before an "and" that are looked at, so that a long text is read as fast."""

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
        if following in lex.TASK_VERBS and _follows_bare_verb(tokens, i, lex.TASK_VERBS):
            return False  # "come and see": two verbs with one object
        return following in lex.AND_CLAUSE_OPENERS or (word == "and" and _joins_verbs(tokens, i))
    if word in ("just", "only"):
        return tokens[i - 1].word not in lex.AFTER_SUBJECT
    if word in lex.REQUEST_VERBS:  # a missing comma: "... find us a museum"
        return following in ("me", "us")
    return word in lex.CONNECTIVES


def _joins_verbs(tokens: Sequence[Token], i: int) -> bool:
    """Return whether the "and" at `i` parts two requests: "repair the bicycle and bake a cake".

    A verb is known, or it has an object: "a", "the" or "me" stands after it.
    """
    verb, *after = [t for t in tokens[i + 1 : i + 6] if t.word not in lex.FILLERS] or [tokens[i]]
    word, ahead = verb.word, [t.word for t in after]
    if _follows_bare_verb(tokens, i) or verb.is_capitalized or not verb.is_content_word:
        return False
    # In "we have fixed the bicycle and bought a cake", no cake is requested.
    if any(t.word in lex.NO_REQUEST_BEFORE for t in _get_clause_before(tokens, i)):
        return False
    if word in lex.TASK_VERBS:
        return True
    named = word.endswith(lex.NON_VERB_ENDINGS) and not word.endswith("ss")
    timed = len(ahead) > 1 and ahead[1] in lex.CIRCUMSTANCE_NOUNS | lex.TIME_ADJECTIVES
    return (
        ahead[:1] != []
        and ahead[0] in lex.OBJECT_OPENERS
        and not (named or timed or word in lex.NON_VERBS)
    )


def _get_clause_before(tokens: Sequence[Token], i: int) -> Sequence[Token]:
    """Return the words of the statement that ends before `i`."""
    least = max(0, i - MAX_WORDS_BEFORE)
    start = next((at for at in range(i - 1, least, -1) if has_stop_before(tokens[at])), least)
    return tokens[start:i]


def _follows_bare_verb(tokens: Sequence[Token], i: int, verbs: Collection[str] = ()) -> bool:
    """Return whether a verb without an object stands before `i`, as in "please come and see".

    With `verbs`, it must be one of these.
    """
    before = [t.word for t in _get_clause_before(tokens, i)][-2:]
    word = before[-1] if before else ""
    if word in lex.VERBS_BEFORE_AND and not verbs:
        return not lex.OBJECT_OPENERS.intersection(before[:-1])
    begins = len(before) == 1 or lex.BEFORE_BARE_VERB.issuperset(before[:-1])
    return begins and (word in verbs if verbs else not word.endswith("s"))
