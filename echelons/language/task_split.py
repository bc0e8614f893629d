"""Splitting: which subordinates a task is for, and which of its words are whose.

`plan` asks once per turn. In a small team every word goes to whoever is best at it; in a
large one (a folder of documents, say) few are asked, chosen by how telling their words are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from echelons.language.lexicon import EVERYTHING
from echelons.language.requested_words import Mark, marks
from echelons.language.team_index import Found, Team
from echelons.language.tokens import Reading
from echelons.text.stemming import stems

MOST_ASKED: Final = 10
"""Subordinates asked at once; a team of more is large."""

NEARLY: Final = 0.75
"""Of the best confidence for a word: who reaches it covers the word."""

ENOUGH: Final = 0.3
"""Of the best score: who reaches it is asked too, even if others cover the same words."""

TINY: Final = 0.15
"""Of the best score: who stays below is not worth a call."""


@dataclass(frozen=True)
class Share:
    """What one subordinate is asked for.

    Attributes:
        name: The subordinate.
        words: The words of the task that are its own, as they were written.
    """

    name: str
    words: tuple[str, ...]


def split(team: Team, task: Reading, part: Sequence[str] = ()) -> tuple[Share, ...]:
    """Share `task` out among `team`.

    Args:
        team: Whom to ask.
        task: What is asked; refused and settled things in it are not matched.
        part: The words of the task that are meant, if the superior said so.

    Returns:
        A share for everyone who is to be asked, nobody twice; empty if nobody fits. A small
        team keeps the roster's order, of a large one the best comes first.
    """
    given = marks(task)
    large = len(team) > MOST_ASKED
    # Scores weigh all words against each other, and a part would take words away from them.
    found = _found(team, task, given, () if large else part)
    out = _ruled_out(team, task, given, found)
    if large:
        return _shares((name for name in _telling(team, found) if name not in out), found)
    owners = {owner for place in found for owner in place.owners}
    if not found and _asks_for_everything(task, given):
        owners = set(team.names)
    return _shares((name for name in team.names if name in owners - out), _owned(found))


def _found(team: Team, task: Reading, given: Sequence[Mark], part: Sequence[str]) -> list[Found]:
    """The places to go by: the part that is meant, or the strongest that the task has."""
    meant = Reading(", ".join(part)).tokens
    if found := team.find(meant, [Mark.WISHED] * len(meant)):
        return found
    found = team.find(task.tokens, given) or team.hinted(task.tokens, given)
    return [place for place in found if _is_wish(place)] or found


def _ruled_out(
    team: Team, task: Reading, given: Sequence[Mark], found: Sequence[Found]
) -> set[str]:
    """Who is not to be asked, for what they do is refused or settled.

    In "plan a trip, no hotels" the trip is everybody's, and so no reason to ask for hotels.
    Who alone serves another word stays, and so does one with several trades, unless it is
    refused by name.
    """
    refusals = [Mark.WISHED if mark is Mark.REFUSED else Mark.REFUSED for mark in given]
    refused = {
        owner: place.words for place in team.find(task.tokens, refusals) for owner in place.owners
    }
    alone = {place.owners[0] for place in found if len(place.owners) == 1}
    return {
        name
        for name, said in refused.items()
        if name not in alone and (not team.is_broad(name) or stems(said) == stems(name))
    }


def _asks_for_everything(task: Reading, given: Sequence[Mark]) -> bool:
    return any(
        token.word in EVERYTHING and mark is Mark.WISHED
        for token, mark in zip(task.tokens, given, strict=True)
    )


def _is_wish(place: Found) -> bool:
    if place.mark is Mark.FRAME:
        return len(place.offers) == 1
    return place.mark is Mark.WISHED


def _owned(found: Iterable[Found]) -> list[Found]:
    return [Found(place.words, place.mark, dict.fromkeys(place.owners, 1.0)) for place in found]


def _shares(names: Iterable[str], found: Sequence[Found]) -> tuple[Share, ...]:
    return tuple(
        Share(name, tuple(dict.fromkeys(place.words for place in found if name in place.offers)))
        for name in names
    )


def _telling(team: Team, found: Sequence[Found]) -> list[str]:
    """Who of a large team to ask: the best for what is not covered yet, then who knows enough.

    A subordinate's score is the sum of confidence times rarity over the words it can serve;
    it covers a word if its confidence for it is nearly the best.
    """
    places = {place.words: place for place in found}
    scores = _scores(team, places.values())
    if not scores:
        return []
    most = max(scores.values())
    chosen: list[str] = []
    open_words = dict(places)
    while open_words and len(chosen) < MOST_ASKED:
        for_open = _scores(team, open_words.values())
        best = max(for_open, key=lambda name: (for_open[name], scores[name]))
        if for_open[best] < TINY * most:
            break
        chosen.append(best)
        open_words = {w: place for w, place in open_words.items() if not _covers(best, place)}
    near = [name for name in scores if scores[name] >= ENOUGH * most and name not in chosen]
    chosen += sorted(near, key=lambda name: -scores[name])
    return sorted(chosen[:MOST_ASKED], key=lambda name: -scores[name])


def _covers(name: str, place: Found) -> bool:
    return place.offers.get(name, 0.0) >= NEARLY * max(place.offers.values())


def _scores(team: Team, places: Iterable[Found]) -> dict[str, float]:
    scores: dict[str, float] = {}
    for place in places:
        rarity = team.rarity(len(place.offers))
        for name, confidence in place.offers.items():
            scores[name] = scores.get(name, 0.0) + confidence * rarity
    return scores
