"""The clauses of a task, with the agents and capabilities that its words name.

`Router` keeps one `Vocabulary` for the agents below each receiver that splits tasks. It reads
tasks by the rules of `echelons.offline`, as the offline planner does, so both treat refusals
("no tours") and settled matters ("we have flights") alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
from echelons.text.stemming import extract_words, stem
from echelons.tree.roster import RosterEntry


@dataclass(frozen=True, slots=True)
class TaskClause:
    """One statement of a task.

    Attributes:
        text: As it was written; the whole task if it has one clause only.
        is_requested: Whether it requests anything; "we have flights already" does not.
        agent_words: The words in it that name an agent, by agent name.
    """

    text: str
    is_requested: bool = True
    agent_words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Vocabulary:
    """The names and capabilities of some agents, as they can be named in a task."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._team = TeamIndex(
            [
                RosterEntry(each.name, "".join(each.texts[:1]), each.capabilities)
                for each in profiles
            ]
        )
        self._phrases: dict[str, dict[StemPhrase, str]] = {}
        self._spellings: dict[StemPhrase, str] = {}
        for profile in profiles:
            own = self._phrases.setdefault(profile.name, {})
            for name in profile.capabilities:
                if key := stem_phrase(name):
                    own.setdefault(key, name)
                    self._spellings.setdefault(key, name)

    def read_clauses(self, task: str) -> tuple[TaskClause, ...]:
        """Return the clauses of a task, with the agents named in each."""
        reading = TokenizedText(task)
        tokens, requested = reading.tokens, mark_requested(reading)
        cut = _find_content_clauses(tokens)
        named = self._find_named_agents(reading)
        if len(cut) < 2:
            return (TaskClause(task, agent_words=named),)
        found: list[TaskClause] = []
        for each in cut:
            text = reading.excerpt[tokens[each[0]].start : tokens[each[-1]].end]
            line = f" {' '.join(tokens[place].word for place in each)} "
            wished = any(requested[i] and tokens[i].is_content_word for i in each)
            here = {
                agent: own
                for agent, every in named.items()
                if wished and (own := tuple(said for said in every if f" {said} " in line))
            }
            found.append(TaskClause(text, wished, here))
        return tuple(found)

    def find_capabilities(self, task: str) -> tuple[str, ...]:
        """Return the capabilities that a task's words name, in order; empty if fewer than two."""
        reading = TokenizedText(task)
        meant = {said for every in self._find_named_agents(reading).values() for said in every}
        places = (each for each in self._find_mentions(reading) if each.words in meant)
        names = dict.fromkeys(name for each in places for name in self._find_capability(each))
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
            share.name: [said for said in share.words if said in offers]
            for share in split_task(self._team, reading)
        }
        rated = {
            said: [offers[said][n] for n, own in shares.items() if said in own] for said in offers
        }
        best = {said: max(confidences) for said, confidences in rated.items() if confidences}
        named = {
            name: own
            for name, every in shares.items()
            if (own := tuple(said for said in every if offers[said][name] >= best[said]))
        }
        if len(best) == 1 and len(named) > 1:
            return {}
        least = {said: COVERING_FRACTION * most for said, most in best.items()}
        whole = [
            name
            for name in named
            if all(offers[said].get(name, 0.0) >= enough for said, enough in least.items())
        ]
        if not whole:
            return self._drop_twins(named)
        able = max(whole, key=lambda name: len(named[name]))
        ties = Counter(named.values())
        beside = {
            name: own
            for name, own in named.items()
            if name == able or ({*own} & {*named[able]} and ties[own] == 1)
        }
        return self._drop_twins({**beside, able: tuple(best)})

    def _drop_twins(self, named: dict[str, StemPhrase]) -> dict[str, StemPhrase]:
        """Return `named` with only the first of agents with equal words and equal capabilities."""
        first: dict[tuple[StemPhrase, frozenset[StemPhrase]], str] = {}
        for name, own in named.items():
            first.setdefault((own, frozenset(self._phrases[name])), name)
        return {name: own for name, own in named.items() if name in first.values()}

    def _find_capability(self, place: CapabilityMention) -> Iterable[str]:
        """Return the capability that a mention names; empty if it is an agent's name."""
        key = stem_phrase(place.words)
        for agent in place.offers:
            for phrase, name in self._phrases[agent].items():
                if phrase == key or _is_loose_match(phrase, key):
                    return [name]
        return []


def stem_phrase(name: str) -> StemPhrase:
    """Return the stems by which a task's words are matched with a capability.

    >>> stem_phrase("Italian flights")
    ('italian', 'flight')
    """
    return tuple(map(stem, extract_words(name)[:MAX_PHRASE_WORDS]))


def _find_content_clauses(tokens: Sequence[Token]) -> list[range]:
    """Return the clauses; one without content words ("well, …") joins the next clause."""
    found: list[range] = []
    start = 0
    for each in split_clauses(tokens):
        if any(tokens[place].is_content_word for place in each):
            found.append(range(start, each.stop))
            start = each.stop
    return found


def _is_loose_match(phrase: StemPhrase, key: StemPhrase) -> bool:
    return len(phrase) > 2 and len(key) > 2 and (phrase[0], phrase[-1]) == (key[0], key[-1])
