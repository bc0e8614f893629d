"""The clauses of a task, with the agents and capabilities that its words name.

`Router` keeps one `Vocabulary` for the agents below each receiver that splits tasks. It reads
tasks by the rules of `echelons.language`, as the offline planner does, so both treat refusals
("no tours") and settled matters ("we have flights") alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from echelons.language.clauses import split_clauses
from echelons.language.requested_words import Mark, marks
from echelons.language.task_split import NEARLY, split
from echelons.language.team_index import LONGEST_PHRASE, Found, Phrase, Team
from echelons.language.tokens import Reading, Token
from echelons.routing.matcher import Profile
from echelons.text.stemming import stem, words
from echelons.tree.roster import Entry


@dataclass(frozen=True, slots=True)
class Clause:
    """One statement of a task.

    Attributes:
        text: As it was written; the whole task if it has one clause only.
        wished: Whether it requests anything; "we have flights already" does not.
        named: The words in it that name an agent, by agent name.
    """

    text: str
    wished: bool = True
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Vocabulary:
    """The names and capabilities of some agents, as they can be named in a task.

    Args:
        profiles: The agents.
    """

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._team = Team(
            [Entry(each.name, next(iter(each.texts), ""), each.capabilities) for each in profiles]
        )
        self._phrases: dict[str, dict[Phrase, str]] = {}
        self._spellings: dict[Phrase, str] = {}
        for profile in profiles:
            own = self._phrases.setdefault(profile.name, {})
            for name in profile.capabilities:
                if key := phrase_of(name):
                    own.setdefault(key, name)
                    self._spellings.setdefault(key, name)

    def read(self, task: str) -> tuple[Clause, ...]:
        """Return the clauses of a task, with the agents named in each."""
        reading = Reading(task)
        tokens, given = reading.tokens, marks(reading)
        cut = _telling(tokens)
        named = self._named(reading)
        if len(cut) < 2:
            return (Clause(task, named=named),)
        found: list[Clause] = []
        for each in cut:
            text = reading.excerpt[tokens[each[0]].start : tokens[each[-1]].end]
            line = f" {' '.join(tokens[place].word for place in each)} "
            wished = any(given[place] > Mark.REFUSED and tokens[place].telling for place in each)
            here = {
                agent: own
                for agent, every in named.items()
                if (own := tuple(said for said in every if f" {said} " in line))
            }
            found.append(Clause(text, wished, here if wished else {}))
        return tuple(found)

    def needs(self, task: str) -> tuple[str, ...]:
        """Return the capabilities that a task's words name, in order; empty if fewer than two."""
        reading = Reading(task)
        meant = {said for every in self._named(reading).values() for said in every}
        places = (each for each in self._found(reading) if each.words in meant)
        names = dict.fromkeys(name for each in places for name in self._names(each))
        return tuple(names) if len(names) > 1 else ()

    def spelled(self, capability: str) -> str:
        """Return the common (first) spelling of a capability: "flight" for "flights"."""
        return self._spellings.get(phrase_of(capability), capability)

    def _found(self, reading: Reading) -> list[Found]:
        return self._team.find(reading.tokens, marks(reading))

    def _named(self, reading: Reading) -> dict[str, tuple[str, ...]]:
        """Return the words that name each agent, without agents made redundant by another.

        A word names the agents with the best confidence for it. But one agent that can serve
        all words nearly as well as the best gets all of them; the others then keep their words
        only where they tie with it.
        """
        # Words known from descriptions only name no agent; the matchers read descriptions.
        offers = {place.words: place.offers for place in self._found(reading)}
        shares = {
            share.name: [said for said in share.words if said in offers]
            for share in split(self._team, reading)
        }
        best = {
            said: max(offers[said][name] for name, own in shares.items() if said in own)
            for said in offers
            if any(said in own for own in shares.values())
        }
        named = {
            name: own
            for name, every in shares.items()
            if (own := tuple(said for said in every if offers[said][name] >= best[said]))
        }
        whole = [
            name
            for name in named
            if all(offers[said].get(name, 0.0) >= NEARLY * most for said, most in best.items())
        ]
        if not whole:
            return self._without_twins(named)
        able = max(whole, key=lambda name: len(named[name]))
        beside = {name: own for name, own in named.items() if {*own} & {*named[able]}}
        return self._without_twins({**beside, able: tuple(best)})

    def _without_twins(self, named: dict[str, Phrase]) -> dict[str, Phrase]:
        """Return `named` with only the first of agents with equal words and equal capabilities."""
        first: dict[tuple[Phrase, frozenset[Phrase]], str] = {}
        for name, own in named.items():
            first.setdefault((own, frozenset(self._phrases[name])), name)
        return {name: own for name, own in named.items() if name in first.values()}

    def _names(self, place: Found) -> Iterable[str]:
        """Return the capability that a mention names; empty if it is an agent's name."""
        key = phrase_of(place.words)
        for agent in place.offers:
            for phrase, name in self._phrases[agent].items():
                if phrase == key or _loosely(phrase, key):
                    return [name]
        return []


def phrase_of(name: str) -> Phrase:
    """Return the stems by which a task's words are matched with a capability.

    >>> phrase_of("Italian flights")
    ('italian', 'flight')
    """
    return tuple(map(stem, words(name)[:LONGEST_PHRASE]))


def _telling(tokens: Sequence[Token]) -> list[range]:
    """Return the clauses; one without content words ("well, …") joins the next clause."""
    found: list[range] = []
    start = 0
    for each in split_clauses(tokens):
        if any(tokens[place].telling for place in each):
            found.append(range(start, each.stop))
            start = each.stop
    return found


def _loosely(phrase: Phrase, key: Phrase) -> bool:
    return len(phrase) > 2 and len(key) > 2 and (phrase[0], phrase[-1]) == (key[0], key[-1])
