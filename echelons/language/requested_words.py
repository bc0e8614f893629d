"""Which words of a task are requested, rather than refused, already done or incidental.

`task_split` and the offline planner's `tool_choice` match only requested words. Each rule looks
at one clause and yields the words whose mark it lowers; a word keeps the lowest mark it gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final

from echelons.language import lexicon as lex
from echelons.language.clauses import ends_before, split_clauses
from echelons.language.tokens import Reading, Token


class Mark(IntEnum):
    """How far a word belongs to what is requested; a higher mark counts more."""

    REFUSED = 0
    """Not wanted, or already done: never matched."""
    ASIDE = 1
    """A reference, as "museum" in "a hotel near the museum": matched if nothing else is."""
    FRAME = 2
    """A circumstance, as "trip" in "a hotel for our trip": matched if only one agent offers it."""
    WISHED = 3


MOST_LISTED: Final = 12
"""Clauses of one refused list at most: "no flights, hotels, cars or museums"."""

SHORT_TOPIC: Final = 4
"""Words of a topic at most that is put as a question and declined at once: "Hotels? No"."""

Finding = tuple[range, Mark]


@lru_cache(maxsize=32)
def marks(reading: Reading) -> tuple[Mark, ...]:
    """Return the mark of each word of `reading`; cached, as several rules ask within one turn.

    >>> said = Reading("A hotel near the opera, we already have flights")
    >>> [t.word for t, mark in zip(said.tokens, marks(said)) if mark is Mark.WISHED]
    ['a', 'hotel', 'near', 'the']
    """
    tokens = reading.tokens
    given = [Mark.WISHED] * len(tokens)
    words = [token.word for token in tokens]
    cut = split_clauses(tokens)
    for number, clause in enumerate(cut):
        if number and _declines(tokens, cut[number - 1], clause):
            _lower(given, cut[number - 1], Mark.REFUSED)
        for refusal in _refusals(words, clause):
            _lower(given, range(refusal, _reach(tokens, cut, number, refusal)), Mark.REFUSED)
        for span in _settled(tokens, words, clause):
            _lower(given, span, Mark.REFUSED)
        for span, mark in _in_passing(tokens, words, clause):
            _lower(given, span, mark)
    return tuple(given)


def _lower(given: list[Mark], span: range, mark: Mark) -> None:
    for i in span:
        given[i] = min(given[i], mark)


def _declines(tokens: Sequence[Token], topic: range, clause: range) -> bool:
    """Return whether `clause` declines the clause before it: "Hotels? No thanks."."""
    said = [tokens[i].word for i in clause]
    asked = "?" in tokens[clause.start].gap or ":" in tokens[clause.start].gap
    return (
        asked and len(topic) <= SHORT_TOPIC and said[0] == "no" and lex.DECLINING.issuperset(said)
    )


def _refusals(words: Sequence[str], clause: range) -> Iterator[int]:
    for i in clause:
        before = words[max(clause.start, i - 3) : i]
        after = words[i + 1 : min(clause.stop, i + 5)]
        if _is_refusal(words[i], before, after):
            yield i


def _is_refusal(word: str, before: Sequence[str], after: Sequence[str]) -> bool:
    following = after[0] if after else ""
    denied = lex.DENIALS.intersection(before)
    if word in ("no", "without"):
        lacking = word == "no" and lex.HAVING.intersection(before[-2:])
        nothing = following in lex.AFTER_NO or lacking
        return following in lex.NEEDLESS or not (nothing or denied)
    if word in lex.NEGATORS or (word, following) in lex.NEGATING_PAIRS:
        return not denied
    if word in lex.DENIALS and _denied_verb(after):
        return True
    return word == "not" and _denies_a_thing(before, following)


def _denied_verb(after: Sequence[str]) -> bool:
    verbs = [word for word in after if word not in lex.ADVERBS]
    return bool(verbs) and verbs[0] in lex.REFUSED and not lex.NO_REFUSAL.intersection(verbs)


def _denies_a_thing(before: Sequence[str], following: str) -> bool:
    return (not before or before[-1] in lex.BEFORE_NOT) and following not in lex.AFTER_NOT


def _reach(tokens: Sequence[Token], cut: Sequence[range], number: int, start: int) -> int:
    """Return the index after the last word that the refusal at `start` covers."""
    clause = cut[number]
    for i in range(start + 1, clause.stop):
        if tokens[i].word in lex.NARROWERS:
            return i
    joints = {"or", "nor"}
    if tokens[start].word in lex.LISTERS or tokens[start].word in lex.DENIALS:
        joints.add("and")
    for later in cut[number + 1 : number + 1 + MOST_LISTED]:
        listed = [tokens[i].word for i in later]  # "no flights, hotels or cars" is one list
        if len(listed) > 4 or lex.REQUESTS.intersection(listed) or "," not in tokens[later[0]].gap:
            break
        if joints.intersection(listed):
            return later.stop
    return clause.stop


def _settled(tokens: Sequence[Token], words: Sequence[str], clause: range) -> Iterator[range]:
    for i in clause:
        if _owns(tokens, words, i, clause):
            yield range(i, clause.stop)
        elif _is_settled(words, i, clause):
            yield range(_back(words, clause, i), clause.stop)


def _owns(tokens: Sequence[Token], words: Sequence[str], i: int, clause: range) -> bool:
    """Return whether "we have …" or "we booked …" begins at `i`."""
    if words[i] not in lex.OWNERS or (i > clause.start and words[i - 1] in lex.QUESTIONING):
        return False
    after = [word for word in words[i + 1 : min(clause.stop, i + 7)] if word not in lex.ADVERBS]
    if not after:
        return False
    if after[0] in lex.SETTLED:
        return not tokens[i].raw.endswith("'d")
    if after[0] not in ("have", "has", "own"):
        return False
    thing = after[1:5]
    if thing and thing[0] in lex.SETTLED:
        return True
    return bool(thing) and not thing[0].endswith("ed") and not lex.NOT_OWNED.intersection(thing)


def _is_settled(words: Sequence[str], i: int, clause: range) -> bool:
    after = [word for word in words[i + 1 : min(clause.stop, i + 5)] if word not in lex.ADVERBS]
    following = after[0] if after else ""
    before = words[clause.start : i]
    if words[i] == "already":
        known = after[:1] == ["know"] and after[1:2] in (["where"], ["what"], ["which"], ["how"])
        return known or following not in lex.OPINIONS
    if words[i] in lex.BEING:
        settled = following in lex.SETTLED_STATES and "to" not in before[-1:]
        needless = after[:2] in (["not", "needed"], ["not", "necessary"], ["not", "required"])
        return settled or needless or following == "unnecessary"
    if words[i] in ("arent", "isnt", "not") and following in ("needed", "necessary", "required"):
        return True
    if words[i] in ("myself", "ourselves"):
        return bool(lex.DONE_BY_HAND.intersection(before))
    wishing = lex.REQUESTS.intersection(before) or "not" in before or "like" in before
    return words[i] in lex.SETTLED and i == clause.stop - 1 and bool(before) and not wishing


def _back(words: Sequence[str], clause: range, i: int) -> int:
    for start in range(i - 1, clause.start - 1, -1):
        if words[start] in lex.PRONOUNS:
            return start
        if words[start] in lex.BREAKS_BACKWARD:
            return start + 1
    return clause.start


def _in_passing(tokens: Sequence[Token], words: Sequence[str], clause: range) -> Iterator[Finding]:
    for i in clause:
        pair = (words[i], words[i + 1]) if i + 1 < clause.stop else (words[i], "")
        if words[i] in lex.BESIDE or pair in lex.BESIDE_PAIRS:
            yield _thing(tokens, i + 1, clause), Mark.ASIDE
        elif pair in lex.FRAME_PAIRS:
            yield _thing(tokens, i + 2, clause), Mark.FRAME
        elif words[i] in ("my", "our"):
            yield range(i, _stated(tokens, i, clause)), Mark.ASIDE
        elif words[i] in lex.PRONOUNS:
            yield _doing(words, i, clause), Mark.ASIDE
        elif words[i] == "show" and pair[1] in lex.SHOWN:
            yield range(i, i + 1), Mark.REFUSED


def _stated(tokens: Sequence[Token], owner: int, clause: range) -> int:
    """Return the index where the noun of "our hotel is in …" ends; `owner` if there is none."""
    for k in range(owner + 2, min(clause.stop - 1, owner + 5)):
        following = tokens[k + 1]
        placed = following.word in lex.PLACED or following.capital
        if tokens[k].word in lex.ARRIVALS or (tokens[k].word in lex.BEING and placed):
            return k
    return owner


def _doing(words: Sequence[str], subject: int, clause: range) -> range:
    """Return the range of the verb in "we are staying with friends", a statement, no request."""
    for k in range(subject + 1, min(clause.stop, subject + 4)):
        if words[k].endswith("ing"):
            return range(k, k + 1 if words[k] not in lex.INTENDING else k)
        if words[k] not in lex.BEING and words[k] not in ("am", *lex.ADVERBS):
            break
    return range(subject, subject)


def _thing(tokens: Sequence[Token], start: int, clause: range) -> range:
    """Return the range of the noun phrase at `start`: at most three words after the articles."""
    while start < clause.stop and not tokens[start].telling and start < clause.stop - 1:
        start += 1
    end = start
    while end < min(clause.stop, start + 3) and tokens[end].telling:
        if end > start and ends_before(tokens[end]):
            break
        end += 1
    return range(start, end)
