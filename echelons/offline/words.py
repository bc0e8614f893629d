"""The words of a task: its tokens, its clauses, and which of its words are requested.

The offline planner reads each message of the human this way, `routing.agent_mentions` each task.
Refused ("no tours") and settled words ("we have flights") are never matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Final, NamedTuple

from echelons.offline import lexicon as lex
from echelons.text.stemming import LONGEST_WORD, STOPWORDS, extract_words, stem

MAX_READ_CHARACTERS: Final = 12_000
"""Characters that the rules look at; of a longer text, its beginning and its end."""

MAX_WORDS_BEFORE: Final = 40
"""Words before an "and" that are looked at, so that a long text is read as fast."""

_RAW: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_APOSTROPHES: Final = str.maketrans({"\N{RIGHT SINGLE QUOTATION MARK}": "'"})
_CLAUSE_STOPS: Final = ",;!?\n()…\N{EN DASH}\N{EM DASH}"


class Token(NamedTuple):
    """One word of a text, as `extract_words` normalises it and as it was written."""

    word: str
    raw: str
    gap: str
    """The characters between the previous word and this one."""
    start: int
    end: int

    @property
    def stem(self) -> str:
        """The stem, by which inflected forms are matched."""
        return stem(self.word)

    @property
    def is_capitalized(self) -> bool:
        """Whether it is written with a capital, like a name."""
        return self.raw[0].isupper()

    @property
    def is_content_word(self) -> bool:
        """Whether it is a content word, not a stop word."""
        return self.word not in STOPWORDS


@dataclass(frozen=True)
class TokenizedText:
    """A text, tokenised once for all rules that look at it."""

    text: str

    @cached_property
    def excerpt(self) -> str:
        """The part that rules look at; token offsets refer to it."""
        text = self.text
        if len(text) > MAX_READ_CHARACTERS:
            text = f"{text[: MAX_READ_CHARACTERS // 2]}\n{text[-MAX_READ_CHARACTERS // 2 :]}"
        text = text.translate(_APOSTROPHES)
        # In a text all in capitals, they say nothing about names.
        return text.lower() if " " in text and text.isupper() else text

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens in order."""
        tokens: list[Token] = []
        previous_end = 0
        for raw in _RAW.finditer(self.excerpt):
            gap = self.excerpt[previous_end : raw.start()]
            # Very long words are not cached: they would only fill the cache.
            short = len(raw[0]) <= LONGEST_WORD
            for word in _normalize_word(raw[0]) if short else extract_words(raw[0]):
                tokens.append(Token(word, raw[0], gap, raw.start(), raw.end()))
                gap = ""
            previous_end = raw.end()
        return tuple(tokens)


@lru_cache(maxsize=4096)
def _normalize_word(raw: str) -> tuple[str, ...]:
    return tuple(extract_words(raw))


def has_stop_before(token: Token) -> bool:
    """Return whether punctuation between `token` and the word before it ends a clause."""
    gap = token.gap
    if gap in ("", " ", ",", "."):  # a comma or full stop without a space is inside a number
        return False
    return any(stop in gap for stop in _CLAUSE_STOPS) or ". " in gap or " - " in gap


def split_clauses(tokens: Sequence[Token]) -> list[range]:
    """Return the clauses of `tokens` as index ranges that together cover all tokens.

    >>> tokens = TokenizedText("We have rooms and flights, so find a museum and book a tour").tokens
    >>> [" ".join(tokens[i].word for i in clause) for clause in split_clauses(tokens)]
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
        if following in lex.TASK_VERBS and _follows_bare_verb(tokens, i, task_verb=True):
            return False  # "come and see": two verbs with one object
        return following in lex.AND_CLAUSE_OPENERS or (word == "and" and _joins_verbs(tokens, i))
    if word in ("just", "only"):
        return tokens[i - 1].word not in lex.AFTER_SUBJECT
    if word in lex.REQUEST_VERBS:  # a missing comma: "... find us a museum"
        return following in ("me", "us")
    return word in lex.CONNECTIVES


def _joins_verbs(tokens: Sequence[Token], i: int) -> bool:
    """Return whether the "and" at `i` parts two requests: "repair the bicycle and bake a cake".

    A verb is in the lexicon, or it has an object: "a", "the" or "me" stands after it.
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
    is_noun = word.endswith(lex.NON_VERB_ENDINGS) and not word.endswith("ss")
    is_time = len(ahead) > 1 and ahead[1] in lex.CIRCUMSTANCE_NOUNS | lex.TIME_ADJECTIVES
    has_object = bool(lex.OBJECT_OPENERS.intersection(ahead[:1]))
    return has_object and not (is_noun or is_time or word in lex.NON_VERBS)


def _get_clause_before(tokens: Sequence[Token], i: int) -> Sequence[Token]:
    first = max(0, i - MAX_WORDS_BEFORE)
    start = next((at for at in range(i - 1, first, -1) if has_stop_before(tokens[at])), first)
    return tokens[start:i]


def _follows_bare_verb(tokens: Sequence[Token], i: int, task_verb: bool = False) -> bool:
    """Return whether a verb without an object stands before `i`, as in "please come and see"."""
    before = [t.word for t in _get_clause_before(tokens, i)][-2:]
    word = before[-1] if before else ""
    if word in lex.VERBS_BEFORE_AND and not task_verb:
        return not lex.OBJECT_OPENERS.intersection(before[:-1])
    begins = len(before) == 1 or lex.BEFORE_BARE_VERB.issuperset(before[:-1])
    return begins and (word in lex.TASK_VERBS if task_verb else not word.endswith("s"))


@lru_cache(maxsize=32)
def mark_requested(text: TokenizedText) -> tuple[bool, ...]:
    """Return which words of `text` are requested; cached, as several rules ask within one turn.

    >>> text = TokenizedText("A hotel near the opera, we already have flights")
    >>> [t.word for t, requested in zip(text.tokens, mark_requested(text)) if requested]
    ['a', 'hotel', 'near', 'the', 'opera']
    """
    requested = [True] * len(text.tokens)
    words = [token.word for token in text.tokens]
    for clause in split_clauses(text.tokens):
        refused = _find_refused_spans(words, clause)
        settled = _find_settled_spans(words, clause)
        for i in chain.from_iterable(chain(refused, settled)):
            requested[i] = False
    return tuple(requested)


def _find_refused_spans(words: Sequence[str], clause: range) -> Iterator[range]:
    for i in clause:
        before = words[max(clause.start, i - 3) : i]
        after = words[i + 1 : min(clause.stop, i + 5)]
        if _is_refusal(words[i], before, after):
            ends = (at for at in range(i + 1, clause.stop) if words[at] in lex.REFUSAL_ENDS)
            yield range(i, next(ends, clause.stop))


def _is_refusal(word: str, before: Sequence[str], after: Sequence[str]) -> bool:
    following = after[0] if after else ""
    denied = lex.DENIALS.intersection(before)
    if word in ("no", "without"):
        lacking = word == "no" and lex.POSSESSION_WORDS.intersection(before[-2:])
        nothing = following in lex.HARMLESS_AFTER_NO or lacking
        return following in lex.REFUSED_AFTER_NO or not (nothing or denied)
    if word in lex.NEGATORS or f"{word}-{following}" in lex.NEGATING_PAIRS:
        return not denied
    verbs = [verb for verb in after if verb not in lex.ADVERBS]
    if (
        word in lex.DENIALS
        and lex.REFUSABLE_VERBS.intersection(verbs[:1])
        and not lex.VERBS_NEVER_REFUSED.intersection(verbs)
    ):
        return True
    begins = not before or before[-1] in lex.REFUSING_BEFORE_NOT
    return word == "not" and begins and following not in lex.HARMLESS_AFTER_NOT


def _find_settled_spans(words: Sequence[str], clause: range) -> Iterator[range]:
    for i in clause:
        if _is_possession(words, i, clause):
            yield range(i, clause.stop)
        elif words[i] == "show" and lex.SHOW_OBJECTS.intersection(words[i + 1 : i + 2]):
            yield range(i, i + 1)
        elif _is_settled(words, i, clause):
            before = range(i - 1, clause.start - 1, -1)
            starts = (at for at in before if words[at] in lex.STATEMENT_OPENERS)
            yield range(next(starts, clause.start), clause.stop)


def _is_possession(words: Sequence[str], i: int, clause: range) -> bool:
    """Return whether "we have …" or "we booked …" begins at `i`."""
    conditional = i > clause.start and words[i - 1] in lex.CONDITION_WORDS
    if words[i] not in lex.PRONOUNS or conditional:
        return False
    after = [word for word in words[i + 1 : min(clause.stop, i + 7)] if word not in lex.ADVERBS]
    verb, thing = after[:1], after[1:5]
    if lex.SETTLED_PARTICIPLES.intersection(verb):
        return True
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
        return following not in lex.OPINION_WORDS
    if words[i] in lex.FORMS_OF_BE:
        return following in lex.SETTLED_STATES and "to" not in before[-1:]
    wishing = lex.REQUEST_VERBS.intersection(before) or "not" in before or "like" in before
    ends = bool(before) and i == clause.stop - 1
    return ends and words[i] in lex.SETTLED_PARTICIPLES and not wishing
