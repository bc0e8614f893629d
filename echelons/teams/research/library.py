"""Choice of the documents that are asked. `team` makes one library for all its agents.

In a big folder, a few words per document do not show which can answer. So the words of all
documents are scored (BM25 with weighted fields, see `search`), the likeliest documents are
searched, and those that answer best are asked. The choice depends on the question alone, so
every superior of a document makes the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import fmean
from typing import Final

from echelons.language.task_split import Share
from echelons.language.team_index import Team
from echelons.language.tokens import Reading as Task
from echelons.teams.research.agent_names import name_of
from echelons.teams.research.corpus import Folder
from echelons.teams.research.question import Question, asked
from echelons.teams.research.search import HEADING_BOOST, K1, B
from echelons.teams.research.survey import Reading, Survey
from echelons.teams.research.tools import Desk

MOST_AGENTS: Final = 10
"""Most agents asked for one question, including those of the folders above a document."""
MOST_DOCUMENTS: Final = 3
"""Most documents asked for one question, plus one for each part that they leave open."""
LOOKED_INTO: Final = 16
"""Most documents searched before any is asked."""
LIKELY: Final = 0.6
"""Share of the best score that a document needs to be searched."""
TITLE_BOOST: Final = 3.0
"""Weight of a word in the title or path, in occurrences in the text."""
ENOUGH: Final = 0.6
"""Least confidence of a document that is asked."""
NEARLY: Final = 0.6
"""Share of the best document's merit that a further document needs to be asked."""


class Library:
    """The documents of a folder, with the agents that lead to each.

    Args:
        read: The folder.
        desks: The search of each document, by path.
        ways: The agent names from below the root down to each document's agent, by path.
    """

    def __init__(
        self, read: Survey, desks: Mapping[str, Desk], ways: Mapping[str, Sequence[str]]
    ) -> None:
        self._known = read.known
        self._readings = tuple(read.readings.values())
        self._average = fmean(each.words.length for each in self._readings) or 1.0
        self._desks = desks
        self._ways = ways
        self.found = lru_cache(maxsize=64)(self._found)

    def __call__(self, team: Team, task: Task, part: Sequence[str] = ()) -> tuple[Share, ...]:
        """Return a share for each subordinate that leads to a chosen document."""
        on_the_way = dict.fromkeys(n for path in self.found(task.text) for n in self._ways[path])
        return tuple(Share(name, ()) for name in on_the_way if name in team.names)

    def _found(self, text: str) -> tuple[str, ...]:
        """Return the paths of the documents to ask, best first."""
        question = asked(text, self._known)
        chosen: dict[str, None] = {}
        agents: set[str] = set()
        best = self._answering(question)
        for path in (*best[:1], *self._left_open(question, best), *best[1:]):
            further = agents.union(self._ways[path])
            if len(further) <= MOST_AGENTS or not chosen:
                chosen[path] = None
                agents = further
        return tuple(chosen)

    def _left_open(self, question: Question, best: Sequence[str]) -> Iterator[str]:
        """Yield a document for each part of the question that the best one does not answer."""
        for part in map(question.of, question.parts if best else ()):
            found = self._desks[best[0]].find(part)
            if not found or found.confidence < ENOUGH:
                yield from self._answering(part)[:1]

    def _answering(self, question: Question) -> Sequence[str]:
        merits: dict[str, float] = {}
        likely = self._likely(question)
        most = max(likely.values(), default=0.0)
        for path, score in likely.items():
            found = self._desks[path].find(question)
            if found and found.confidence >= ENOUGH:
                merits[path] = found.confidence * (1 + score / most)
        best = max(merits.values(), default=0.0)
        ranked = sorted(merits, key=lambda path: -merits[path])
        return [path for path in ranked[:MOST_DOCUMENTS] if merits[path] >= NEARLY * best]

    def _likely(self, question: Question) -> dict[str, float]:
        """Return the best scores of documents for a question, by path, best first."""
        scores = {each.document.path: self._score(each, question) for each in self._readings}
        ranked = sorted(scores, key=lambda path: (-scores[path], path))[:LOOKED_INTO]
        least = LIKELY * scores[ranked[0]]
        return {path: scores[path] for path in ranked if scores[path] >= least > 0}

    def _score(self, reading: Reading, question: Question) -> float:
        words = reading.words
        norm = K1 * (1 - B + B * words.length / self._average)
        score = 0.0
        for stem, share in question.shares.items():
            count = (
                words.counts.get(stem, 0)
                + TITLE_BOOST * (stem in words.title)
                + HEADING_BOOST * (stem in words.headings)
            )
            score += share * count * (K1 + 1) / (count + norm)
        return score


def ways(folder: Folder, above: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Return the agent names from below the root down to each document's agent, by path."""
    found = {each.path: (*above, name_of(each.path)) for each in folder.documents}
    for below in folder.folders:
        found |= ways(below, (*above, name_of(below.path)))
    return found
