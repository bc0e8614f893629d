"""Which words of a task are requested, rather than refused, already done or incidental.

`task_shares` and the offline planner's `tool_choice` match only requested words. Each rule looks
at one clause and yields the words whose mark it lowers; a word keeps the lowest mark it gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import Final

from echelons.language import lexicon as lex
from echelons.language.clauses import has_stop_before, split_clauses
from echelons.language.tokens import Token, TokenizedText


class WordMark(IntEnum):
    """How far a word belongs to what is requested; a higher mark counts more."""

    REFUSED = 0
    """Not wanted, or already done: never matched."""
    REFERENCE = 1
    """A reference, as "museum" in "a hotel near the museum": matched if nothing else is."""
    CIRCUMSTANCE = 2
    """A circumstance, as "trip" in "a hotel for our trip": matched if only one agent offers it."""
    REQUESTED = 3


MAX_LISTED_CLAUSES: Final = 12
"""Clauses of one refused list at most: "no flights, hotels, cars or museums"."""

MAX_TOPIC_WORDS: Final = 4
"""Words of a topic at most that is put as a question and declined at once: "Hotels? No"."""


@lru_cache(maxsize=32)
def mark_words(reading: TokenizedText) -> tuple[WordMark, ...]:
    """Return the mark of each word of `reading`; cached, as several rules ask within one turn.

    >>> said = TokenizedText("A hotel near the opera, we already have flights")
    >>> [t.word for t, mark in zip(said.tokens, mark_words(said)) if mark is WordMark.REQUESTED]
    ['a', 'hotel', 'near', 'the']
    """
    tokens = reading.tokens
    marked = [WordMark.REQUESTED] * len(tokens)
    words = [token.word for token in tokens]
    all_clauses = split_clauses(tokens)
    for number, clause in enumerate(all_clauses):
        refused = chain(
            _find_refused_spans(tokens, words, all_clauses, number),
            _find_settled_spans(tokens, words, clause),
        )
        remarks = _find_side_remarks(tokens, words, clause)
        for span, mark in chain(((span, WordMark.REFUSED) for span in refused), remarks):
            for i in span:
                marked[i] = min(marked[i], mark)
    return tuple(marked)


def _is_declined(tokens: Sequence[Token], topic: range, clause: range) -> bool:
    """Return whether `clause` declines the clause before it: "Hotels? No thanks."."""
    said = [tokens[i].word for i in clause]
    if said[0] != "no" or len(topic) > MAX_TOPIC_WORDS:
        return False
    gap = tokens[clause.start].gap
    return ("?" in gap or ":" in gap) and lex.DECLINING_WORDS.issuperset(said)


def _find_refused_spans(
    tokens: Sequence[Token], words: Sequence[str], all_clauses: Sequence[range], number: int
) -> Iterator[range]:
    clause = all_clauses[number]
    if number and _is_declined(tokens, all_clauses[number - 1], clause):
        yield all_clauses[number - 1]
    for i in clause:
        before = words[max(clause.start, i - 3) : i]
        after = words[i + 1 : min(clause.stop, i + 5)]
        if _is_refusal(words[i], before, after):
            yield range(i, _find_refusal_end(tokens, all_clauses, number, i))


def _is_refusal(word: str, before: Sequence[str], after: Sequence[str]) -> bool:
    following = after[0] if after else ""
    denied = lex.DENIALS.intersection(before)
    if word in ("no", "without"):
        lacking = word == "no" and lex.POSSESSION_WORDS.intersection(before[-2:])
        nothing = following in lex.HARMLESS_AFTER_NO or lacking
        return following in lex.REFUSED_AFTER_NO or not (nothing or denied)
    if word in lex.NEGATORS or (word, following) in lex.NEGATING_PAIRS:
        return not denied
    if word in lex.DENIALS and _is_denied_verb(after):
        return True
    begins = not before or before[-1] in lex.REFUSING_BEFORE_NOT
    return word == "not" and begins and following not in lex.HARMLESS_AFTER_NOT


def _is_denied_verb(after: Sequence[str]) -> bool:
    verbs = [word for word in after if word not in lex.ADVERBS]
    refusable = bool(lex.REFUSABLE_VERBS.intersection(verbs[:1]))
    return refusable and not lex.VERBS_NEVER_REFUSED.intersection(verbs)


def _find_refusal_end(
    tokens: Sequence[Token], all_clauses: Sequence[range], number: int, start: int
) -> int:
    """Return the index after the last word that the refusal at `start` covers."""
    clause = all_clauses[number]
    for i in range(start + 1, clause.stop):
        if tokens[i].word in lex.REFUSAL_ENDS:
            return i
    word = tokens[start].word
    covers_and = word in lex.LIST_NEGATORS or word in lex.DENIALS
    joints = {"or", "nor", "and"} if covers_and else {"or", "nor"}
    for later in all_clauses[number + 1 : number + 1 + MAX_LISTED_CLAUSES]:
        listed = [tokens[i].word for i in later]  # "no flights, hotels or cars" is one list
        goes_on = len(listed) <= 4 and "," in tokens[later[0]].gap
        if not goes_on or lex.REQUEST_VERBS.intersection(listed):
            break
        if joints.intersection(listed):
            return later.stop
    return clause.stop


def _find_settled_spans(
    tokens: Sequence[Token], words: Sequence[str], clause: range
) -> Iterator[range]:
    for i in clause:
        if _is_possession(tokens, words, i, clause):
            yield range(i, clause.stop)
        elif _is_settled(words, i, clause):
            yield range(_find_statement_start(words, clause, i), clause.stop)


def _is_possession(tokens: Sequence[Token], words: Sequence[str], i: int, clause: range) -> bool:
    """Return whether "we have …" or "we booked …" begins at `i`."""
    if words[i] not in lex.OWNER_PRONOUNS or (
        i > clause.start and words[i - 1] in lex.CONDITION_WORDS
    ):
        return False
    after = [word for word in words[i + 1 : min(clause.stop, i + 7)] if word not in lex.ADVERBS]
    verb, thing = after[:1], after[1:5]
    if lex.SETTLED_PARTICIPLES.intersection(verb):
        return not tokens[i].raw.endswith("'d")
    if verb not in (["have"], ["has"], ["own"]) or not thing:
        return False
    if thing[0] in lex.SETTLED_PARTICIPLES:
        return True
    return not thing[0].endswith("ed") and not lex.CIRCUMSTANCE_NOUNS.intersection(thing)


def _is_settled(words: Sequence[str], i: int, clause: range) -> bool:
    after = [word for word in words[i + 1 : min(clause.stop, i + 5)] if word not in lex.ADVERBS]
    following = after[0] if after else ""
    before = words[clause.start : i]
    if words[i] == "already":
        known = after[:1] == ["know"] and after[1:2] in (["where"], ["what"], ["which"], ["how"])
        return known or following not in lex.OPINION_WORDS
    if words[i] in lex.FORMS_OF_BE:
        settled = following in lex.SETTLED_STATES and "to" not in before[-1:]
        needless = after[:2] in (["not", "needed"], ["not", "necessary"], ["not", "required"])
        return settled or needless or following == "unnecessary"
    if words[i] in ("arent", "isnt", "not") and following in ("needed", "necessary", "required"):
        return True
    if words[i] in ("myself", "ourselves"):
        return bool(lex.SELF_SERVICE_VERBS.intersection(before))
    wishing = lex.REQUEST_VERBS.intersection(before) or "not" in before or "like" in before
    ends = bool(before) and i == clause.stop - 1
    return ends and words[i] in lex.SETTLED_PARTICIPLES and not wishing


def _find_statement_start(words: Sequence[str], clause: range, i: int) -> int:
    for start in range(i - 1, clause.start - 1, -1):
        if words[start] in lex.PRONOUNS:
            return start
        if words[start] in lex.STATEMENT_BREAKS:
            return start + 1
    return clause.start


def _find_side_remarks(
    tokens: Sequence[Token], words: Sequence[str], clause: range
) -> Iterator[tuple[range, WordMark]]:
    for i in clause:
        pair = (words[i], words[i + 1]) if i + 1 < clause.stop else (words[i], "")
        if words[i] in lex.PROXIMITY_WORDS or pair in lex.PROXIMITY_PAIRS:
            yield _find_noun_phrase(tokens, i + 1, clause), WordMark.REFERENCE
        elif pair in lex.CIRCUMSTANCE_PAIRS:
            yield _find_noun_phrase(tokens, i + 2, clause), WordMark.CIRCUMSTANCE
        elif words[i] in ("my", "our"):
            yield range(i, _find_known_noun_end(tokens, i, clause)), WordMark.REFERENCE
        elif words[i] in lex.PRONOUNS:
            yield _find_activity(words, i, clause), WordMark.REFERENCE
        elif words[i] == "show" and pair[1] in lex.SHOW_OBJECTS:
            yield range(i, i + 1), WordMark.REFUSED


def _find_known_noun_end(tokens: Sequence[Token], owner: int, clause: range) -> int:
    """Return the index where the noun of "our hotel is in …" ends; `owner` if there is none."""
    for k in range(owner + 2, min(clause.stop - 1, owner + 5)):
        following = tokens[k + 1]
        placed = following.word in lex.LOCATION_WORDS or following.is_capitalized
        if tokens[k].word in lex.SCHEDULE_VERBS or (tokens[k].word in lex.FORMS_OF_BE and placed):
            return k
    return owner


def _find_activity(words: Sequence[str], subject: int, clause: range) -> range:
    """Return the range of the verb in "we are staying with friends", a statement, no request."""
    for k in range(subject + 1, min(clause.stop, subject + 4)):
        if words[k].endswith("ing"):
            return range(k, k + 1 if words[k] not in lex.INTENTION_PARTICIPLES else k)
        if words[k] not in lex.FORMS_OF_BE and words[k] not in ("am", *lex.ADVERBS):
            break
    return range(subject, subject)


def _find_noun_phrase(tokens: Sequence[Token], start: int, clause: range) -> range:
    """Return the range of the noun phrase at `start`: at most three words after the articles."""
    while start < clause.stop - 1 and not tokens[start].is_content_word:
        start += 1
    end = start
    while end < min(clause.stop, start + 3) and tokens[end].is_content_word:
        if end > start and has_stop_before(tokens[end]):
            break
        end += 1
    return range(start, end)
