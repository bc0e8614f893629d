"""Finds places and other names in a text, with their role in the sentence.

Names are capitalised spans, or else the words after a preposition; the preposition gives the
role. `arguments` looks them up by role.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from echelons.language import lexicon as lex
from echelons.language.clauses import has_stop_before
from echelons.language.tokens import Token, TokenizedText
from echelons.models.planner.dates import find_moments
from echelons.text.stemming import STOPWORDS


class PlaceRole(StrEnum):
    """The role of a place in its sentence."""

    ORIGIN = "origin"
    DESTINATION = "destination"
    PLACE = "place"
    NEAR = "near"
    VENUE = "venue"
    MENTION = "mention"


MAX_NAME_WORDS: Final = 5
"""Words of a name at most."""

_PREPOSITION_ROLES: Final = {
    word: role
    for role, words in (
        (PlaceRole.ORIGIN, "from leaving departing"),
        (PlaceRole.DESTINATION, "to into towards visit visiting"),
        (PlaceRole.PLACE, "in across throughout"),
        (PlaceRole.NEAR, "near around about of within"),
        (PlaceRole.MENTION, "for"),
        (PlaceRole.VENUE, "at called named"),
    )
    for word in words.split()
}
_NON_NAMES: Final = STOPWORDS | lex.NON_PLACE_WORDS | _PREPOSITION_ROLES.keys()
_VERBS: Final = lex.REQUEST_VERBS | lex.MORE_VERBS
_JOINTS: Final = (["and"], ["or"], ["then"], ["and", "then"])


@dataclass(frozen=True)
class PlaceName:
    """The tokens `start` to `end` of a text, which name something.

    Attributes:
        name: As it was written; capitalised if it was written without capitals.
        certain: Whether it was capitalised; otherwise it only stands where a name would.
    """

    name: str
    role: PlaceRole
    certain: bool
    start: int
    end: int


@lru_cache(maxsize=32)
def find_place_names(reading: TokenizedText) -> tuple[PlaceName, ...]:
    """Return all places that `reading` may name, in order; cached within a turn.

    >>> found = find_place_names(TokenizedText("Fly to New York from London in May"))
    >>> [(place.name, place.role.value) for place in found]
    [('New York', 'destination'), ('London', 'origin')]
    """
    tokens = reading.tokens
    taken = _find_dated_tokens(reading)
    found: list[PlaceName] = []
    i = 0
    while i < len(tokens):
        place = _match_capitalised(tokens, i, taken) or _match_after_preposition(tokens, i, taken)
        if place:
            found.append(place)
        i = place.end if place else i + 1
    return tuple(_assign_journey_roles(tokens, found))


def find_listed_places(
    tokens: Sequence[Token], found: Sequence[PlaceName], first: PlaceName
) -> list[PlaceName]:
    """Return the places listed together with `first`, itself included.

    "Rome, Florence and Venice" are three; "Rome, Italy" is one, for nothing joins the two.
    """
    chain = [first]
    joined = False
    for place in found:
        if place.start < chain[-1].end:
            continue
        between = [token.word for token in tokens[chain[-1].end : place.start]]
        if between not in _JOINTS and (between or not _has_comma(tokens[place.start])):
            break
        chain.append(place)
        joined = joined or bool(between)
    return chain if joined else [first]


def _find_dated_tokens(reading: TokenizedText) -> set[int]:
    """Return the indices of the tokens that belong to a date or a time."""
    spans = [(moment.start, moment.end) for moment in find_moments(reading.excerpt)]
    taken: set[int] = set()
    at = 0
    for i, token in enumerate(reading.tokens):
        while at < len(spans) and spans[at][1] <= token.start:
            at += 1
        if at < len(spans) and spans[at][0] < token.end:
            taken.add(i)
    return taken


def _match_capitalised(tokens: Sequence[Token], i: int, taken: set[int]) -> PlaceName | None:
    if not _is_name(tokens, i, taken):
        return None
    end = i + 1
    while end < min(len(tokens), i + MAX_NAME_WORDS):
        if has_stop_before(tokens[end]) and tokens[end - 1].word not in ("st", "mt"):
            break
        if _is_name(tokens, end, taken):
            end += 1
        elif tokens[end].word in lex.NAME_PARTICLES and _is_name(tokens, end + 1, taken):
            end += 2
        else:
            break
    role = _find_role(tokens, i)
    opens = role is None and (i == 0 or any(stop in tokens[i].gap for stop in ".!?\n:"))
    if opens and end == i + 1 and _is_sentence_opener(tokens[i].word):
        return None
    return PlaceName(_join_name(tokens[i:end]), role or PlaceRole.MENTION, not opens, i, end)


def _match_after_preposition(tokens: Sequence[Token], i: int, taken: set[int]) -> PlaceName | None:
    word = tokens[i - 1].word if i else ""
    role = _PREPOSITION_ROLES.get(word)
    if role is None or role in (PlaceRole.MENTION, PlaceRole.VENUE) or word in ("of", "about"):
        return None
    end = i
    while end < min(len(tokens), i + 3) and _is_possible_name(tokens[end], end, taken):
        if has_stop_before(tokens[end]):
            break
        end += 1
    name = " ".join(_strip_possessive(token).capitalize() for token in tokens[i:end])
    return PlaceName(name, role, certain=False, start=i, end=end) if name else None


def _assign_journey_roles(
    tokens: Sequence[Token], found: Sequence[PlaceName]
) -> Iterator[PlaceName]:
    """Yield the places, with the roles of journeys: "London to Rome", "between A and B"."""
    for number, place in enumerate(found):
        role = place.role
        before = tokens[place.start - 1].word if place.start else ""
        following = found[number + 1] if number + 1 < len(found) else None
        link = [t.word for t in tokens[place.end : following.start]] if following else []
        previous = found[number - 1] if number else None
        if (before == "between" and link == ["and"]) or (
            role is PlaceRole.MENTION and link == ["to"] and before != "for"
        ):
            role = PlaceRole.ORIGIN
        elif before == "and" and previous and previous.start:
            inherits = tokens[previous.start - 1].word != "between"
            role = previous.role if inherits else PlaceRole.DESTINATION
        begins = place.role is PlaceRole.MENTION and tokens[place.start].is_capitalized
        # In "London, then Paris" a list of names goes on, so London is one.
        listed = following and (link in _JOINTS or (not link and _has_comma(tokens[place.end])))
        certain = place.certain or (begins and bool(listed))
        yield PlaceName(place.name, role, certain, place.start, place.end)


def _has_comma(token: Token) -> bool:
    return token.gap.strip() == ","


def _find_role(tokens: Sequence[Token], i: int) -> PlaceRole | None:
    """Return the role given by the words before the name at `i`, articles skipped."""
    before = i - 1
    if before >= 0 and tokens[before].word in ("the", "central", "downtown"):
        before -= 1
    if before < 0 or has_stop_before(tokens[i]):
        return None
    word = tokens[before].word
    earlier = tokens[before - 1].word if before else ""
    if word == "of" and earlier == "out":
        return PlaceRole.ORIGIN
    if word == "for" and earlier in ("leaving", "departing", "heading", "bound"):
        return PlaceRole.DESTINATION
    return _PREPOSITION_ROLES.get(word)


def _is_name(tokens: Sequence[Token], i: int, taken: set[int]) -> bool:
    if not 0 <= i < len(tokens) or i in taken:
        return False
    return tokens[i].is_capitalized and tokens[i].word not in _NON_NAMES


def _is_possible_name(token: Token, i: int, taken: set[int]) -> bool:
    if i in taken or token.is_capitalized or not token.raw.isalpha():
        return False
    return token.word not in _NON_NAMES and token.word not in _VERBS


def _is_sentence_opener(word: str) -> bool:
    """Return whether `word` is capitalised only because it begins a sentence."""
    known = word in _VERBS or word in lex.SENTENCE_OPENERS
    return known or word.endswith(lex.NON_NAME_ENDINGS)


def _join_name(tokens: Sequence[Token]) -> str:
    """Return the words joined with their hyphens and full stops: "Baden-Baden"."""
    name = _strip_possessive(tokens[0])
    for token in tokens[1:]:
        name += (token.gap if token.gap.strip() in ("-", ".") else " ") + _strip_possessive(token)
    return name


def _strip_possessive(token: Token) -> str:
    return token.raw.removesuffix("'s")
