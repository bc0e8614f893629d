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
from echelons.language.clauses import ends_before
from echelons.language.tokens import Reading, Token
from echelons.models.planner.dates import moments
from echelons.text.stemming import STOPWORDS


class Role(StrEnum):
    """The role of a place in its sentence."""

    ORIGIN = "origin"
    DESTINATION = "destination"
    PLACE = "place"
    NEAR = "near"
    VENUE = "venue"
    MENTION = "mention"


LONGEST: Final = 5
"""Words of a name at most."""

_ROLES: Final = {
    "from": Role.ORIGIN,
    "leaving": Role.ORIGIN,
    "departing": Role.ORIGIN,
    "to": Role.DESTINATION,
    "into": Role.DESTINATION,
    "towards": Role.DESTINATION,
    "visit": Role.DESTINATION,
    "visiting": Role.DESTINATION,
    "in": Role.PLACE,
    "near": Role.NEAR,
    "around": Role.NEAR,
    "about": Role.NEAR,
    "of": Role.NEAR,
    "across": Role.PLACE,
    "throughout": Role.PLACE,
    "within": Role.NEAR,
    "for": Role.MENTION,
    "at": Role.VENUE,
    "called": Role.VENUE,
    "named": Role.VENUE,
}


_JOINTS: Final = (["and"], ["or"], ["then"], ["and", "then"])


@dataclass(frozen=True)
class Place:
    """A span of a text that names something.

    Attributes:
        name: As it was written; capitalised if it was written without capitals.
        role: Its role in the sentence.
        certain: Whether it was capitalised; otherwise it only stands where a name would.
        start: Index of its first token.
        end: Index after its last token.
    """

    name: str
    role: Role
    certain: bool
    start: int
    end: int


@lru_cache(maxsize=32)
def places(reading: Reading) -> tuple[Place, ...]:
    """Return all places that `reading` may name, in order; cached within a turn.

    >>> [(p.name, p.role.value) for p in places(Reading("Fly to New York from London in May"))]
    [('New York', 'destination'), ('London', 'origin')]
    """
    tokens = reading.tokens
    taken = _dated(reading)
    found: list[Place] = []
    i = 0
    while i < len(tokens):
        place = _capitalised(tokens, i, taken) or _after_preposition(tokens, i, taken)
        if place:
            found.append(place)
        i = place.end if place else i + 1
    return tuple(_between(tokens, found))


def enumerated(tokens: Sequence[Token], found: Sequence[Place], first: Place) -> list[Place]:
    """Return the places listed together with `first`, itself included.

    "Rome, Florence and Venice" are three; "Rome, Italy" is one, for nothing joins the two.
    """
    chain = [first]
    joined = False
    for place in found:
        if place.start < chain[-1].end:
            continue
        between = [token.word for token in tokens[chain[-1].end : place.start]]
        gap = tokens[place.start].gap.strip()
        if not (between in _JOINTS or (not between and gap == ",")):
            break
        chain.append(place)
        joined = joined or bool(between)
    return chain if joined else [first]


def _dated(reading: Reading) -> set[int]:
    """Return the indices of the tokens that belong to a date or a time."""
    spans = [(moment.start, moment.end) for moment in moments(reading.excerpt)]
    taken: set[int] = set()
    at = 0
    for i, token in enumerate(reading.tokens):
        while at < len(spans) and spans[at][1] <= token.start:
            at += 1
        if at < len(spans) and spans[at][0] < token.end:
            taken.add(i)
    return taken


def _capitalised(tokens: Sequence[Token], i: int, taken: set[int]) -> Place | None:
    if not _is_name(tokens, i, taken):
        return None
    end = i + 1
    while end < min(len(tokens), i + LONGEST):
        if ends_before(tokens[end]) and tokens[end - 1].word not in ("st", "mt"):
            break
        if _is_name(tokens, end, taken):
            end += 1
        elif tokens[end].word in lex.PARTICLES and _is_name(tokens, end + 1, taken):
            end += 2
        else:
            break
    role = _role(tokens, i)
    if role is None and _begins_sentence(tokens, i):
        if end == i + 1 and _opens(tokens[i].word):
            return None
        return Place(_written(tokens[i:end]), Role.MENTION, certain=False, start=i, end=end)
    return Place(_written(tokens[i:end]), role or Role.MENTION, certain=True, start=i, end=end)


def _after_preposition(tokens: Sequence[Token], i: int, taken: set[int]) -> Place | None:
    role = _ROLES.get(tokens[i - 1].word) if i else None
    if role is None or role in (Role.MENTION, Role.VENUE) or tokens[i - 1].word in ("of", "about"):
        return None
    end = i
    while end < min(len(tokens), i + 3) and _may_name(tokens[end], end, taken):
        if ends_before(tokens[end]):
            break
        end += 1
    if end == i:
        return None
    return Place(_titled(tokens[i:end]), role, certain=False, start=i, end=end)


def _between(tokens: Sequence[Token], found: Sequence[Place]) -> Iterator[Place]:
    """Yield the places, with the roles of journeys: "London to Rome", "between A and B"."""
    for number, place in enumerate(found):
        role = place.role
        before = tokens[place.start - 1].word if place.start else ""
        following = found[number + 1] if number + 1 < len(found) else None
        link = [t.word for t in tokens[place.end : following.start]] if following else []
        previous = found[number - 1] if number else None
        if (before == "between" and link == ["and"]) or (
            role is Role.MENTION and link == ["to"] and before != "for"
        ):
            role = Role.ORIGIN
        elif before == "and" and previous and previous.start:
            inherits = tokens[previous.start - 1].word != "between"
            role = previous.role if inherits else Role.DESTINATION
        elif not before or role is not Role.MENTION:
            role = place.role
        certain = place.certain or (bool(following) and _opens_list(tokens, place, link))
        yield Place(place.name, role, certain, place.start, place.end)


def _opens_list(tokens: Sequence[Token], place: Place, link: Sequence[str]) -> bool:
    """Return whether a list of names goes on, as in "London, then Paris": so London is a name."""
    begins = place.role is Role.MENTION and tokens[place.start].capital
    return begins and (link in _JOINTS or (not link and tokens[place.end].gap.strip() == ","))


def _role(tokens: Sequence[Token], i: int) -> Role | None:
    """Return the role given by the words before the name at `i`, articles skipped."""
    before = i - 1
    if before >= 0 and tokens[before].word in ("the", "central", "downtown"):
        before -= 1
    if before < 0 or ends_before(tokens[i]):
        return None
    word = tokens[before].word
    if word == "of" and before and tokens[before - 1].word == "out":
        return Role.ORIGIN
    if (
        word == "for"
        and before
        and tokens[before - 1].word in ("leaving", "departing", "heading", "bound")
    ):
        return Role.DESTINATION
    return _ROLES.get(word)


def _is_name(tokens: Sequence[Token], i: int, taken: set[int]) -> bool:
    if not 0 <= i < len(tokens) or i in taken:
        return False
    token = tokens[i]
    return (
        token.capital
        and token.word not in STOPWORDS
        and token.word not in lex.NO_PLACES
        and token.word not in _ROLES
    )


def _may_name(token: Token, i: int, taken: set[int]) -> bool:
    return (
        i not in taken
        and token.raw.isalpha()
        and not token.capital
        and token.word not in STOPWORDS
        and token.word not in _ROLES
        and token.word not in lex.NO_PLACES
        and token.word not in lex.REQUESTS
        and token.word not in lex.MORE_VERBS
    )


def _opens(word: str) -> bool:
    """Return whether `word` is capitalised only because it begins a sentence."""
    known = word in lex.REQUESTS or word in lex.OPENERS or word in lex.MORE_VERBS
    return known or word.endswith(lex.NO_NAME_ENDINGS)


def _begins_sentence(tokens: Sequence[Token], i: int) -> bool:
    return i == 0 or any(stop in tokens[i].gap for stop in ".!?\n:")


def _written(tokens: Sequence[Token]) -> str:
    """Return the words joined with their hyphens and full stops: "Baden-Baden"."""
    name = _bare(tokens[0])
    for token in tokens[1:]:
        name += (token.gap if token.gap.strip() in ("-", ".") else " ") + _bare(token)
    return name


def _titled(tokens: Sequence[Token]) -> str:
    return " ".join(_bare(token).capitalize() for token in tokens)


def _bare(token: Token) -> str:
    return token.raw.removesuffix("'s")
