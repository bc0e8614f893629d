"""Splits a task among the subordinates of a team, by the words that each of them offers.

The offline planner and `routing.agent_mentions` use it. In a small team each word goes to the
subordinate with the highest confidence for it; in a large one (a folder of documents, say) a
few subordinates are selected by how rare their words are in the team.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from echelons.language.lexicon import TOTALITY_WORDS
from echelons.language.team_index import CapabilityMention, TeamIndex
from echelons.language.tokens import TokenizedText
from echelons.language.word_marks import WordMark, mark_words
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
    """The words of a task, in lower case, that the subordinate `name` serves."""

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
        offers = [(place.words, [*place.offers]) for place in found]
        names = _select_best(team, found)
    else:
        offers = [(place.words, place.best_names) for place in found]
        owners = {owner for _, best in offers for owner in best}
        marked = zip(task.tokens, word_marks, strict=True)
        everything = any(
            t.word in TOTALITY_WORDS and mark is WordMark.REQUESTED for t, mark in marked
        )
        names = [name for name in team.names if name in owners or (everything and not found)]
    return tuple(
        TaskShare(name, tuple(dict.fromkeys(words for words, owners in offers if name in owners)))
        for name in names
        if name not in excluded
    )


def _select_mentions(
    team: TeamIndex, task: TokenizedText, word_marks: Sequence[WordMark], part: Sequence[str]
) -> list[CapabilityMention]:
    """Return the mentions in the part that is meant, or else the strongest of the task."""
    part_tokens = TokenizedText(", ".join(part)).tokens
    if found := team.find_mentions(part_tokens, [WordMark.REQUESTED] * len(part_tokens)):
        return found
    found = team.find_mentions(task.tokens, word_marks)
    found = found or team.find_hinted_mentions(task.tokens, word_marks)
    return [
        place
        for place in found
        if place.mark is WordMark.REQUESTED
        or (place.mark is WordMark.CIRCUMSTANCE and len(place.offers) == 1)
    ] or found


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
        open_words = {
            words: place
            for words, place in open_words.items()
            if place.offers.get(best, 0.0) < COVERING_FRACTION * max(place.offers.values())
        }
    near = [n for n, score in scores.items() if score >= SELECTED_FRACTION * most]
    chosen += sorted((n for n in near if n not in chosen), key=lambda name: -scores[name])
    return sorted(chosen[:MAX_SUBORDINATES], key=lambda name: -scores[name])


def _score_subordinates(team: TeamIndex, places: Iterable[CapabilityMention]) -> dict[str, float]:
    scores: dict[str, float] = {}
    for place in places:
        rarity = team.rarity(len(place.offers))
        for name, confidence in place.offers.items():
            scores[name] = scores.get(name, 0.0) + confidence * rarity
    return scores
