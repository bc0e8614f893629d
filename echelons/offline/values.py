"""Places, dates, times and numbers in a text; `tool_calls` takes values from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

from echelons.offline import lexicon as lex
from echelons.offline.words import Token, TokenizedText, has_stop_before
from echelons.text.stemming import STOPWORDS, extract_stems, extract_words, stem

MomentKind = Literal["date", "time"]

_MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?"
_WEEKDAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_YEAR: Final = r"(?:,?\s(?:19|20)\d\d)?"
_PART_OF_DAY: Final = r"(?:morning|afternoon|evening)"
_PATTERNS: Final[tuple[tuple[MomentKind, str], ...]] = (
    ("date", r"\d{4}-\d\d-\d\d"),
    ("date", r"\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)"),
    ("date", rf"(?:{_WEEKDAY},?\s)?(?:the\s)?{_DAY}\s(?:of\s)?{_MONTH}{_YEAR}"),
    ("date", rf"(?:{_WEEKDAY},?\s)?{_MONTH}\s(?:the\s)?{_DAY}(?!\d){_YEAR}"),
    ("date", rf"{_MONTH},?\s(?:19|20)\d\d"),
    ("date", r"the day after tomorrow|tomorrow|today|tonight"),
    ("date", rf"(?:(?:next|this|coming)\s)?{_WEEKDAY}"),
    ("date", r"(?:next|this|coming)\s(?:week|weekend|month|year)|weekend"),
    ("date", rf"(?:(?<=in\s)|(?<=of\s)|(?<=this\s)|(?<=next\s)){_MONTH}"),
    ("time", r"\d{1,2}(?:[:.]\d\d)?\s?(?:am|pm|a\.m\.|p\.m\.)(?!\w)"),
    ("time", r"\d{1,2}:\d\d(?!\d)|\d{1,2}\so'clock"),
    ("time", rf"noon|midnight|(?:(?<=this\s)|(?<=in\sthe\s)|(?<=tomorrow\s)){_PART_OF_DAY}"),
    ("time", r"(?<=\sat\s)\d{1,2}(?=\s*(?:$|[.,;!?)]|for|on|in|and|to|tomorrow|tonight|please))"),
)
_MOMENT: Final = re.compile(
    r"(?<![\w.:/-])(?:"
    + "|".join(f"(?P<{kind}{i}>{pattern})" for i, (kind, pattern) in enumerate(_PATTERNS))
    + r")(?!\w)",
    re.IGNORECASE,
)
_JOINTS: Final = re.compile(r"[\s,]{0,3}(?:(?:at|on|in|the|of|around|by|from|-)\s){0,2}\s?")

_SPELLED: Final = {
    **{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8},
    **{"nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "dozen": 12, "couple": 2},
}
_NUMBER: Final = re.compile(
    r"(?<![\w.,])(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,9})?(?![\w]|[.:]\d)"
    rf"|(?<!\w)(?:{'|'.join(_SPELLED)})(?!\w)",
    re.IGNORECASE,
)
_PEOPLE: Final = frozenset(
    extract_stems("people person guest adult traveller passenger diner cover seat friend visitor")
)
_MEASURES: Final = frozenset(extract_stems("night day week month hour minute euro dollar star"))


@dataclass(frozen=True)
class Moment:
    """A date or a time of day, as a text from `start` to `end` names it."""

    text: str
    kind: MomentKind
    start: int
    end: int


@lru_cache(maxsize=32)
def find_moments(text: str) -> tuple[Moment, ...]:
    """Return all dates and times in `text`, in order; cached within a turn."""
    return tuple(
        Moment(match[0], "date" if (match.lastgroup or "").startswith("date") else "time", *span)
        for match in _MOMENT.finditer(text)
        for span in (match.span(),)
    )


def _find_moment_characters(text: str) -> frozenset[int]:
    """Return the offsets of all characters of dates and times."""
    return frozenset(i for moment in find_moments(text) for i in range(moment.start, moment.end))


def find_when(text: str, kind: MomentKind | None = None) -> str:
    """Return the first date and the first time in `text`, or only that of one kind.

    >>> find_when("a table tomorrow for two at 8pm"), find_when("tomorrow at 8pm", "time")
    ('tomorrow at 8pm', '8pm')
    """
    moments = find_moments(text)
    day = next((moment for moment in moments if moment.kind == "date"), None)
    hour = next((moment for moment in moments if moment.kind == "time"), None)
    if kind or not day or not hour:
        moment = {"date": day, "time": hour}[kind] if kind else day or hour
        return moment.text if moment else ""
    first, second = sorted((day, hour), key=lambda moment: moment.start)
    if _JOINTS.fullmatch(text[first.end : second.start]):
        return text[first.start : second.end]
    return f"{day.text} at {hour.text}"


def find_number(stems: frozenset[str], text: str) -> float | None:
    """Return the number in `text` that counts what a parameter's name, by its stems, says.

    >>> find_number(frozenset({"peopl"}), "For 3 nights, a table for four, at most 80 euros")
    4.0
    """
    counts_people = bool(stems & _PEOPLE)
    units = stems | _PEOPLE if counts_people else stems
    named, guessed = [], []
    moments = _find_moment_characters(text)
    for match in _NUMBER.finditer(text):
        if match.start() in moments:
            continue
        value = float(_SPELLED.get(match[0].lower()) or match[0].replace(",", ""))
        after = text[match.end() : match.end() + 40]
        unit = frozenset(map(stem, extract_words(after)[:2]))
        before = text[max(0, match.start() - len("for ")) : match.start()]
        if units & unit:
            named.append(value)
        elif counts_people and before.lower() == "for " and not _MEASURES & unit:
            guessed.append(value)
    return next(iter([*named, *guessed]), None)


class PlaceRole(StrEnum):
    """The role of a place in its sentence."""

    ORIGIN = "origin"
    DESTINATION = "destination"
    PLACE = "place"
    VENUE = "venue"
    MENTION = "mention"


MAX_NAME_WORDS: Final = 5
"""Words of a name at most."""

_PREPOSITION_ROLES: Final = {
    word: role
    for role, words in (
        (PlaceRole.ORIGIN, "from leaving departing"),
        (PlaceRole.DESTINATION, "to into towards visit visiting"),
        (PlaceRole.PLACE, "in across throughout near around about of within"),
        (PlaceRole.MENTION, "for"),
        (PlaceRole.VENUE, "at called named"),
    )
    for word in words.split()
}
_NON_NAMES: Final = STOPWORDS | lex.NON_PLACE_WORDS | _PREPOSITION_ROLES.keys()
_VERBS: Final = lex.REQUEST_VERBS | lex.MORE_VERBS
_OPENERS: Final = _VERBS | lex.SENTENCE_OPENERS


@dataclass(frozen=True)
class PlaceName:
    """The tokens `start` to `end` of a text, which name something."""

    name: str
    """As it was written; capitalised if it was written without capitals."""
    role: PlaceRole
    certain: bool
    """Whether it was capitalised; otherwise it only stands where a name would."""
    start: int
    end: int


@lru_cache(maxsize=32)
def find_place_names(text: TokenizedText) -> tuple[PlaceName, ...]:
    """Return all places that `text` may name, in order; cached within a turn.

    >>> names = find_place_names(TokenizedText("Fly to New York from London in May"))
    >>> [(place.name, place.role.value) for place in names]
    [('New York', 'destination'), ('London', 'origin')]
    """
    tokens = text.tokens
    moments = _find_moment_characters(text.excerpt)
    dated = {i for i, token in enumerate(tokens) if token.start in moments}
    names: list[PlaceName] = []
    i = 0
    while i < len(tokens):
        name = _match_capitalised(tokens, i, dated) or _match_after_preposition(tokens, i, dated)
        if name:
            names.append(name)
        i = name.end if name else i + 1
    return tuple(names)


def _match_capitalised(tokens: Sequence[Token], i: int, dated: set[int]) -> PlaceName | None:
    if not _is_name(tokens, i, dated):
        return None
    end = i + 1
    while end < min(len(tokens), i + MAX_NAME_WORDS):
        if has_stop_before(tokens[end]) and tokens[end - 1].word not in ("st", "mt"):
            break
        if _is_name(tokens, end, dated):
            end += 1
        elif tokens[end].word in lex.NAME_PARTICLES and _is_name(tokens, end + 1, dated):
            end += 2
        else:
            break
    role = _find_role(tokens, i)
    opens = role is None and (i == 0 or any(stop in tokens[i].gap for stop in ".!?\n:"))
    word = tokens[i].word
    if opens and end == i + 1 and (word in _OPENERS or word.endswith(lex.NON_NAME_ENDINGS)):
        return None  # capitalised only because it begins a sentence
    name = _strip_possessive(tokens[i])
    for token in tokens[i + 1 : end]:  # with their hyphens and full stops: "Baden-Baden"
        name += (token.gap if token.gap.strip() in ("-", ".") else " ") + _strip_possessive(token)
    return PlaceName(name, role or PlaceRole.MENTION, not opens, i, end)


def _match_after_preposition(tokens: Sequence[Token], i: int, dated: set[int]) -> PlaceName | None:
    word = tokens[i - 1].word if i else ""
    role = _PREPOSITION_ROLES.get(word)
    if role in (None, PlaceRole.MENTION, PlaceRole.VENUE) or word in ("of", "about"):
        return None
    end = i
    while end < min(len(tokens), i + 3) and _is_possible_name(tokens[end], end, dated):
        if has_stop_before(tokens[end]):
            break
        end += 1
    name = " ".join(_strip_possessive(token).capitalize() for token in tokens[i:end])
    return PlaceName(name, role, certain=False, start=i, end=end) if role and name else None


def _find_role(tokens: Sequence[Token], i: int) -> PlaceRole | None:
    """Return the role that the words before the name at `i` give it, articles skipped."""
    before = i - 1
    if before >= 0 and tokens[before].word in ("the", "central", "downtown"):
        before -= 1
    if before < 0 or has_stop_before(tokens[i]):
        return None
    return _PREPOSITION_ROLES.get(tokens[before].word)


def _is_name(tokens: Sequence[Token], i: int, dated: set[int]) -> bool:
    if not 0 <= i < len(tokens) or i in dated:
        return False
    return tokens[i].is_capitalized and tokens[i].word not in _NON_NAMES


def _is_possible_name(token: Token, i: int, dated: set[int]) -> bool:
    if i in dated or token.is_capitalized or not token.raw.isalpha():
        return False
    return token.word not in _NON_NAMES and token.word not in _VERBS


def _strip_possessive(token: Token) -> str:
    return token.raw.removesuffix("'s")
