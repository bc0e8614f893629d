"""Splits a task among the subordinates of a team, by the words that each of them offers.

The offline planner and `routing.task_wording` use it. In a small team each word goes to the
subordinate with the highest confidence for it; in a large one (a folder of documents, say) a
few subordinates are selected by how rare their words are in the team.
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
"""Subordinates asked at once; a team with more of them is large."""

NEARLY: Final = 0.75
"""Fraction of the best confidence for a word from which on a subordinate covers the word."""

ENOUGH: Final = 0.3
"""Fraction of the best score from which on a subordinate is asked, even for covered words."""

TINY: Final = 0.15
"""Fraction of the best score below which a subordinate is not worth a call."""


@dataclass(frozen=True)
class Share:
    """The part of a task that goes to one subordinate.

    Attributes:
        name: The subordinate's name.
        words: The words of the task that it serves, in lower case.
    """

    name: str
    words: tuple[str, ...]


def split(team: Team, task: Reading, part: Sequence[str] = ()) -> tuple[Share, ...]:
    """Return the shares of `task` among the subordinates of `team`.

    Args:
        team: The subordinates to choose from.
        task: The task; its refused and settled words are not matched.
        part: The words of the task that are meant, if the superior limited it.

    Returns:
        One share for each subordinate to ask; empty if none fits. Shares of a small team are
        in the roster's order, those of a large one have the best subordinate first.
    """
    given = marks(task)
    large = len(team) > MOST_ASKED
    # The scores of a large team weigh all words against each other, so none may be left out.
    found = _found(team, task, given, () if large else part)
    out = _ruled_out(team, task, given, found)
    if large:
        return _shares((name for name in _telling(team, found) if name not in out), found)
    owners = {owner for place in found for owner in place.owners}
    if not found and _asks_for_everything(task, given):
        owners = set(team.names)
    return _shares((name for name in team.names if name in owners - out), _owned(found))


def _found(team: Team, task: Reading, given: Sequence[Mark], part: Sequence[str]) -> list[Found]:
    """Return the mentions in the part that is meant, or else the strongest of the task."""
    meant = Reading(", ".join(part)).tokens
    if found := team.find(meant, [Mark.WISHED] * len(meant)):
        return found
    found = team.find(task.tokens, given) or team.hinted(task.tokens, given)
    return [place for place in found if _is_wish(place)] or found


def _ruled_out(
    team: Team, task: Reading, given: Sequence[Mark], found: Sequence[Found]
) -> set[str]:
    """Return the names of subordinates not to ask, because their work is refused or settled.

    In "plan a trip, no hotels" all subordinates offer the trip, so it is no reason to ask for
    hotels. A subordinate stays if it alone serves another word, or if it offers much more than
    the usual, unless it is refused by name.
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
    """Return the names of a large team's subordinates to ask, the best first.

    Greedily the best for the words not covered yet, then all others with a high score. The score
    is the sum of confidence times rarity over the words that a subordinate can serve.
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
