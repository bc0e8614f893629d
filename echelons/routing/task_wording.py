"""Wording: the clauses of a task, and which agents and capabilities its words name.

`Router` keeps one `Vocabulary` for the agents below each receiver that splits tasks. It sees
them as the offline planner sees a team, so that refusals ("no tours") and what is settled
already ("we have flights") are read alike in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from echelons.language.clauses import clauses
from echelons.language.requested_words import Mark, marks
from echelons.language.task_split import NEARLY, split
from echelons.language.team_index import LONGEST_PHRASE, Found, Team
from echelons.language.tokens import Reading, Token
from echelons.routing.matcher import Profile
from echelons.text.stemming import stem, words
from echelons.tree.roster import Entry

Phrase = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clause:
    """One statement of a task.

    Attributes:
        text: As it was written; the whole task if it has one clause only.
        wished: Whether anything is asked for in it; not in "we have flights already".
        named: The words that name somebody in it, by agent.
    """

    text: str
    wished: bool = True
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wording:
    """A task as `plan` reads it.

    Attributes:
        clauses: Its clauses in order.
    """

    clauses: tuple[Clause, ...]


class Vocabulary:
    """What can be asked for in words, of some agents.

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

    def read(self, task: str) -> Wording:
        """Return the clauses of a task, with who is named in each."""
        reading = Reading(task)
        tokens, given = reading.tokens, marks(reading)
        cut = _telling(tokens)
        named = self._named(reading)
        if len(cut) < 2:
            return Wording((Clause(task, named=named),))
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
        return Wording(tuple(found))

    def needs(self, task: str) -> tuple[str, ...]:
        """Return the capabilities that the words of a task name, in order; none for one."""
        reading = Reading(task)
        meant = {said for every in self._named(reading).values() for said in every}
        places = (each for each in self._found(reading) if each.words in meant)
        names = dict.fromkeys(name for each in places for name in self._names(each))
        return tuple(names) if len(names) > 1 else ()

    def spelled(self, capability: str) -> str:
        """Return the first of all spellings of a capability: "flight" for "flights"."""
        return self._spellings.get(phrase_of(capability), capability)

    def _found(self, reading: Reading) -> list[Found]:
        return self._team.find(reading.tokens, marks(reading))

    def _named(self, reading: Reading) -> dict[str, tuple[str, ...]]:
        """Return who is named by which words, without those whom somebody else makes needless.

        A word is for whoever is best at it. But who can do all that is named, and nearly as
        well, is asked for all of it; who is exactly as good at a word is meant beside it.
        """
        # What only descriptions speak of names nobody; matchers read descriptions.
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
        """Return the same, of those who can do the same the first: others stand in for it."""
        first: dict[tuple[Phrase, frozenset[Phrase]], str] = {}
        for name, own in named.items():
            first.setdefault((own, frozenset(self._phrases[name])), name)
        return {name: own for name, own in named.items() if name in first.values()}

    def _names(self, place: Found) -> Iterable[str]:
        """Return the capability that a place in a task names; none if it is an agent's name."""
        key = phrase_of(place.words)
        for agent in place.offers:
            for phrase, name in self._phrases[agent].items():
                if phrase == key or _loosely(phrase, key):
                    return [name]
        return []


def phrase_of(name: str) -> Phrase:
    """Return the stems by which a capability is recognised in a task.

    >>> phrase_of("Italian flights")
    ('italian', 'flight')
    """
    return tuple(map(stem, words(name)[:LONGEST_PHRASE]))


def _telling(tokens: Sequence[Token]) -> list[range]:
    """Return the clauses, each "then" and "well" as a part of what it leads to."""
    found: list[range] = []
    start = 0
    for each in clauses(tokens):
        if any(tokens[place].telling for place in each):
            found.append(range(start, each.stop))
            start = each.stop
    return found


def _loosely(phrase: Phrase, key: Phrase) -> bool:
    return len(phrase) > 2 and len(key) > 2 and (phrase[0], phrase[-1]) == (key[0], key[-1])
