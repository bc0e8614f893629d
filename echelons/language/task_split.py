"""Splits a task among the subordinates of a team, by the words that each of them offers.

The offline planner and `routing.task_wording` use it. In a small team each word goes to the
subordinate with the highest confidence for it; in a large one (a folder of documents, say) a
few subordinates are selected by how rare their words are in the team.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from echelons.language.lexicon import TOTALITY_WORDS
from echelons.language.requested_words import WordMark, mark_words
from echelons.language.team_index import CapabilityMention, TeamIndex
from echelons.language.tokens import TokenizedText
from echelons.text.stemming import extract_stems

MAX_SUBORDINATES: Final = 10
"""Subordinates asked at once; a team with more of them is large."""

COVERING_FRACTION: Final = 0.75
"""Fraction of the best confidence for a word from which on a subordinate covers the word."""

SELECTED_FRACTION: Final = 0.3
"""Fraction of the best score from which on a subordinate is asked, even for covered words."""

DROPPED_FRACTION: Final = 0.15
"""Fraction of the best score below which a subordinate is not worth a call."""


@dataclass(frozen=True)
class TaskShare:
    """The part of a task that goes to one subordinate.

    Attributes:
        name: The subordinate's name.
        words: The words of the task that it serves, in lower case.
    """

    name: str
    words: tuple[str, ...]


def split_task(
    team: TeamIndex, task: TokenizedText, part: Sequence[str] = ()
) -> tuple[TaskShare, ...]:
    """Return the shares of `task` among the subordinates of `team`.

    Args:
        team: The subordinates to choose from.
        task: The task; its refused and settled words are not matched.
        part: The words of the task that are meant, if the superior limited it.

    Returns:
        One share for each subordinate to ask; empty if none fits. Shares of a small team are
        in the roster's order, those of a large one have the best subordinate first.
    """
    word_marks = mark_words(task)
    large = len(team) > MAX_SUBORDINATES
    # The scores of a large team weigh all words against each other, so none may be left out.
    found = _select_mentions(team, task, word_marks, () if large else part)
    excluded = _find_excluded(team, task, word_marks, found)
    if large:
        return _build_shares(
            (name for name in _select_best(team, found) if name not in excluded), found
        )
    owners = {owner for place in found for owner in place.best_names}
    if not found and _is_everything_requested(task, word_marks):
        owners = set(team.names)
    return _build_shares(
        (name for name in team.names if name in owners - excluded), _keep_best_offers(found)
    )


def _select_mentions(
    team: TeamIndex, task: TokenizedText, word_marks: Sequence[WordMark], part: Sequence[str]
) -> list[CapabilityMention]:
    """Return the mentions in the part that is meant, or else the strongest of the task."""
    part_tokens = TokenizedText(", ".join(part)).tokens
    if found := team.find_mentions(part_tokens, [WordMark.REQUESTED] * len(part_tokens)):
        return found
    found = team.find_mentions(task.tokens, word_marks) or team.find_hinted_mentions(
        task.tokens, word_marks
    )
    return [place for place in found if _is_requested(place)] or found


def _find_excluded(
    team: TeamIndex,
    task: TokenizedText,
    word_marks: Sequence[WordMark],
    found: Sequence[CapabilityMention],
) -> set[str]:
    """Return the names of subordinates not to ask, because their work is refused or settled.

    In "plan a trip, no hotels" all subordinates offer the trip, so it is no reason to ask for
    hotels. A subordinate stays if it alone serves another word, or if it offers much more than
    the usual, unless it is refused by name.
    """
    refusals = [
        WordMark.REQUESTED if mark is WordMark.REFUSED else WordMark.REFUSED for mark in word_marks
    ]
    refused = {
        owner: place.words
        for place in team.find_mentions(task.tokens, refusals)
        for owner in place.best_names
    }
    alone = {place.best_names[0] for place in found if len(place.best_names) == 1}
    return {
        name
        for name, said in refused.items()
        if name not in alone
        and (not team.is_broad(name) or extract_stems(said) == extract_stems(name))
    }


def _is_everything_requested(task: TokenizedText, word_marks: Sequence[WordMark]) -> bool:
    return any(
        token.word in TOTALITY_WORDS and mark is WordMark.REQUESTED
        for token, mark in zip(task.tokens, word_marks, strict=True)
    )


def _is_requested(mention: CapabilityMention) -> bool:
    if mention.mark is WordMark.CIRCUMSTANCE:
        return len(mention.offers) == 1
    return mention.mark is WordMark.REQUESTED


def _keep_best_offers(found: Iterable[CapabilityMention]) -> list[CapabilityMention]:
    return [
        CapabilityMention(place.words, place.mark, dict.fromkeys(place.best_names, 1.0))
        for place in found
    ]


def _build_shares(
    names: Iterable[str], found: Sequence[CapabilityMention]
) -> tuple[TaskShare, ...]:
    return tuple(
        TaskShare(
            name, tuple(dict.fromkeys(place.words for place in found if name in place.offers))
        )
        for name in names
    )


def _select_best(team: TeamIndex, found: Sequence[CapabilityMention]) -> list[str]:
    """Return the names of a large team's subordinates to ask, the best first.

    Greedily the best for the words not covered yet, then all others with a high score. The score
    is the sum of confidence times rarity over the words that a subordinate can serve.
    """
    places = {place.words: place for place in found}
    scores = _score_subordinates(team, places.values())
    if not scores:
        return []
    most = max(scores.values())
    chosen: list[str] = []
    open_words = dict(places)
    while open_words and len(chosen) < MAX_SUBORDINATES:
        for_open = _score_subordinates(team, open_words.values())
        best = max(for_open, key=lambda name: (for_open[name], scores[name]))
        if for_open[best] < DROPPED_FRACTION * most:
            break
        chosen.append(best)
        open_words = {w: place for w, place in open_words.items() if not _is_covered(best, place)}
    near = [
        name for name in scores if scores[name] >= SELECTED_FRACTION * most and name not in chosen
    ]
    chosen += sorted(near, key=lambda name: -scores[name])
    return sorted(chosen[:MAX_SUBORDINATES], key=lambda name: -scores[name])


def _is_covered(name: str, mention: CapabilityMention) -> bool:
    return mention.offers.get(name, 0.0) >= COVERING_FRACTION * max(mention.offers.values())


def _score_subordinates(team: TeamIndex, places: Iterable[CapabilityMention]) -> dict[str, float]:
    scores: dict[str, float] = {}
    for place in places:
        rarity = team.rarity(len(place.offers))
        for name, confidence in place.offers.items():
            scores[name] = scores.get(name, 0.0) + confidence * rarity
    return scores
