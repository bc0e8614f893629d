"""The parts of a task, and the agents and capabilities that the words of its clauses name.

Tasks are read by the rules of `echelons.offline`, as the offline planner does, so both treat
refusals ("no tours") and settled matters ("we have flights") alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from echelons.offline.team import (
    COVERING_FRACTION,
    MAX_PHRASE_WORDS,
    CapabilityMention,
    StemPhrase,
    TeamIndex,
    split_task,
)
from echelons.offline.words import Token, TokenizedText, mark_requested, split_clauses
from echelons.routing.matcher import Profile
from echelons.routing.ranking import Candidate, Route
from echelons.text.stemming import extract_words, stem
from echelons.tree.members import RosterEntry


@dataclass(frozen=True, slots=True)
class TaskClause:
    """One statement of a task."""

    text: str
    is_requested: bool = True
    agent_words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Vocabulary:
    """The names and capabilities of some agents, as they can be named in a task."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._team = TeamIndex(
            [
                RosterEntry(profile.name, "".join(profile.texts[:1]), profile.capabilities)
                for profile in profiles
            ]
        )
        self._phrases: dict[str, dict[StemPhrase, str]] = {}
        self._spellings: dict[StemPhrase, str] = {}
        for profile in profiles:
            phrases = self._phrases.setdefault(profile.name, {})
            for name in profile.capabilities:
                if key := stem_phrase(name):
                    phrases.setdefault(key, name)
                    self._spellings.setdefault(key, name)

    def read_clauses(self, task: str) -> tuple[TaskClause, ...]:
        """Return the clauses of a task, with the agents named in each."""
        reading = TokenizedText(task)
        tokens, requested = reading.tokens, mark_requested(reading)
        cut = _find_content_clauses(tokens)
        named = self._find_named_agents(reading)
        if len(cut) < 2:
            return (TaskClause(task, agent_words=named),)
        clauses: list[TaskClause] = []
        for clause in cut:
            text = reading.excerpt[tokens[clause[0]].start : tokens[clause[-1]].end]
            line = f" {' '.join(tokens[place].word for place in clause)} "
            wished = any(requested[i] and tokens[i].is_content_word for i in clause)
            here = {
                agent: words
                for agent, every in named.items()
                if wished and (words := tuple(word for word in every if f" {word} " in line))
            }
            clauses.append(TaskClause(text, wished, here))
        return tuple(clauses)

    def find_capabilities(self, task: str) -> tuple[str, ...]:
        """Return the capabilities that a task's words name, in order; empty if fewer than two."""
        reading = TokenizedText(task)
        meant = {word for every in self._find_named_agents(reading).values() for word in every}
        places = (mention for mention in self._find_mentions(reading) if mention.words in meant)
        names = dict.fromkeys(name for place in places for name in self._find_capability(place))
        return tuple(names) if len(names) > 1 else ()

    def normalize_spelling(self, capability: str) -> str:
        """Return the common (first) spelling of a capability: "flight" for "flights"."""
        return self._spellings.get(stem_phrase(capability), capability)

    def _find_mentions(self, reading: TokenizedText) -> list[CapabilityMention]:
        return self._team.find_mentions(reading.tokens, mark_requested(reading))

    def _find_named_agents(self, reading: TokenizedText) -> dict[str, tuple[str, ...]]:
        """Return the words that name each agent, without agents made redundant by another.

        A word names the agents with the best confidence for it. But one agent that can serve
        all words nearly as well as the best gets all of them; the others then keep their words
        only where they tie with it, and not with each other. A single word that several agents
        serve equally well names none: one of them is enough, and the ranking says which.
        """
        # Words known from descriptions only name no agent; the matchers read descriptions.
        offers = {place.words: place.offers for place in self._find_mentions(reading)}
        shares = {
            share.name: [word for word in share.words if word in offers]
            for share in split_task(self._team, reading)
        }
        rated = {
            word: [offers[word][n] for n, words in shares.items() if word in words]
            for word in offers
        }
        best = {word: max(confidences) for word, confidences in rated.items() if confidences}
        named = {
            name: words
            for name, every in shares.items()
            if (words := tuple(word for word in every if offers[word][name] >= best[word]))
        }
        if len(best) == 1 and len(named) > 1:
            return {}
        least = {word: COVERING_FRACTION * highest for word, highest in best.items()}
        whole = [
            name
            for name in named
            if all(offers[word].get(name, 0.0) >= enough for word, enough in least.items())
        ]
        if not whole:
            return self._drop_twins(named)
        capable = max(whole, key=lambda name: len(named[name]))
        ties = Counter(named.values())
        beside = {
            name: words
            for name, words in named.items()
            if name == capable or ({*words} & {*named[capable]} and ties[words] == 1)
        }
        return self._drop_twins({**beside, capable: tuple(best)})

    def _drop_twins(self, named: dict[str, StemPhrase]) -> dict[str, StemPhrase]:
        """Return `named` with only the first of agents with equal words and equal capabilities."""
        first: dict[tuple[StemPhrase, frozenset[StemPhrase]], str] = {}
        for name, words in named.items():
            first.setdefault((words, frozenset(self._phrases[name])), name)
        return {name: words for name, words in named.items() if name in first.values()}

    def _find_capability(self, place: CapabilityMention) -> Iterable[str]:
        """Return the capability that a mention names; empty if it is an agent's name."""
        key = stem_phrase(place.words)
        for agent in place.offers:
            for phrase, name in self._phrases[agent].items():
                # The inner small words of a phrase vary: "what can we see" is "what to see".
                is_loose = min(len(phrase), len(key)) > 2
                if phrase == key or (is_loose and (phrase[0], phrase[-1]) == (key[0], key[-1])):
                    return [name]
        return []


def stem_phrase(name: str) -> StemPhrase:
    """Return the stems by which a task's words are matched with a capability."""
    return tuple(map(stem, extract_words(name)[:MAX_PHRASE_WORDS]))


def _find_content_clauses(tokens: Sequence[Token]) -> list[range]:
    """Return the clauses; one without content words ("well, …") joins the next clause."""
    clauses: list[range] = []
    start = 0
    for clause in split_clauses(tokens):
        if any(tokens[place].is_content_word for place in clause):
            clauses.append(range(start, clause.stop))
            start = clause.stop
    return clauses


NEARLY_BEST: Final = 0.75
"""Fraction of the best match; an agent that reaches it in every clause can do the whole task."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a task for one agent.

    Attributes:
        task: Its clauses; of a clause for several agents only the words that name this one. An
            only part has the whole task.
        candidate: The agent that it is for.
        route: The ranking of its clause, for when that agent cannot do it; without the agents
            that other words of the clause name.
    """

    task: str
    candidate: Candidate
    route: Route


SplitPlan = Generator[str, Route, tuple[Part, ...]]
"""A generator that yields texts to be ranked, is sent their routes, and returns the parts."""


class SplitSteps:
    """A split in progress; the caller ranks each text, synchronously or not."""

    def __init__(self, steps: SplitPlan) -> None:
        self._steps = steps
        self.parts: tuple[Part, ...] = ()
        # Where no clause requests anything, there is nothing to rank and there are no parts.
        self.next_text = next(steps, "")

    def add_route(self, route: Route) -> None:
        """Continue with the route of the text in `next_text`."""
        try:
            self.next_text = self._steps.send(route)
        except StopIteration as ended:
            self.next_text, self.parts = "", ended.value


@dataclass(frozen=True, slots=True)
class _ClausePiece:
    """The words of a clause for one agent; without a candidate if no agent can do them."""

    said: str
    route: Route
    candidate: Candidate | None


def plan_parts(task: str, clauses: Sequence[TaskClause]) -> SplitPlan:
    """Split `task`, with one route for each of its clauses."""
    routes: dict[str, Route] = {}
    for clause in clauses:
        if clause.is_requested and clause.text not in routes:
            routes[clause.text] = yield clause.text
    pieces = [piece for clause in clauses for piece in _split_clause(clause, routes)]
    parts = tuple(_merge_pieces(pieces))
    if len(parts) < 2:
        return tuple(replace(part, task=task) for part in parts)
    if len(routes) > 1 and (capable := _find_able_of_all(list(routes.values()))):
        route = yield task
        if candidate := next((item for item in route.candidates if item.agent in capable), None):
            return (Part(task, candidate, route),)
    return parts


def _split_clause(clause: TaskClause, routes: dict[str, Route]) -> Iterator[_ClausePiece]:
    route = routes.get(clause.text) if clause.is_requested else None
    if route is None:
        return
    candidates = {item.agent: item for item in route.candidates}
    named = {agent: word for agent, word in clause.agent_words.items() if agent in candidates}
    if not named or _has_better_agent(route, named):
        yield _ClausePiece(clause.text, route, route.best)
        return
    if len(named) == 1:
        agent = next(iter(named))
        yield _ClausePiece(clause.text, route.with_leader(agent), candidates[agent])
        return
    for agent, word in named.items():
        others = {other for other, words in named.items() if words != word}
        led = route.with_leader(agent, without=others)
        yield _ClausePiece(", ".join(word), led, candidates[agent])


def _has_better_agent(route: Route, named: dict[str, tuple[str, ...]]) -> bool:
    """Return whether the best candidate fits a clause far better than the agents its words name."""
    best = max(route.candidates, key=lambda entry: entry.match)
    named_match = max(item.match for item in route.candidates if item.agent in named)
    return best is route.best and named_match < NEARLY_BEST * best.match


def _find_able_of_all(routes: Sequence[Route]) -> set[str]:
    """Return the names of agents nearly the best in all clauses that have candidates."""
    ables = [
        {item.agent for item in route.candidates if item.match >= NEARLY_BEST * route.match}
        for route in routes
        if route.candidates
    ]
    return set.intersection(*ables) if ables else set()


def _merge_pieces(pieces: Sequence[_ClausePiece]) -> Iterator[Part]:
    """Yield a part for each agent; a piece without candidate joins the piece before it."""
    word: dict[str, list[str]] = {}
    first: dict[str, tuple[Candidate, Route]] = {}
    agent = next((piece.candidate.agent for piece in pieces if piece.candidate), "")
    for piece in pieces:
        if piece.candidate:
            agent = piece.candidate.agent
            first.setdefault(agent, (piece.candidate, piece.route))
        word.setdefault(agent, []).append(piece.said)
    for agent, (candidate, route) in first.items():
        yield Part(", ".join(dict.fromkeys(word[agent])), candidate, route)
