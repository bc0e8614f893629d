"""Chooses among an agent's own tools those that the task names and has arguments for.

`reply_plan` calls it once per turn. A tool that acts on the world, such as one that reserves a
table, needs its own verb or noun in the task; a look-up needs less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from echelons.language.clauses import split_clauses
from echelons.language.lexicon import QUESTION_OPENERS, listed
from echelons.language.requested_words import Mark, marks
from echelons.language.team_index import GENERIC
from echelons.models.planner.arguments import Filled, fill
from echelons.models.planner.conversation_context import Said
from echelons.models.planner.toolbox import Tool
from echelons.text.stemming import STOPWORDS, stem, words

MOST_TOOLS: Final = 5
"""Different tools called at once at most."""

_SAME_ACT: Final = tuple(
    frozenset(map(stem, listed(group)))
    for group in (
        "reserve book reservation booking",
        "buy purchase order",
        "send email mail post message",
        "cancel revoke withdraw",
        "delete remove erase",
        "pay transfer refund charge",
        "create add schedule make new open",
        "update change edit set modify rename move",
        "write save store upload publish submit",
        "approve reject sign confirm",
    )
)
_ACTS: Final = frozenset().union(*_SAME_ACT)


Calls = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True)
class Choice:
    """The calls of the agent's own tools.

    Attributes:
        calls: Name and arguments of each call.
        missing: If no call is possible: the parameters that the fitting tool lacks.
        tool: Name of the tool that lacks them.
    """

    calls: Calls = ()
    missing: tuple[str, ...] = ()
    tool: str = ""


def choose(tools: Sequence[Tool], said: Said, alone: bool) -> Choice:
    """Return the calls of `tools` that fit the task.

    Args:
        tools: The agent's own tools.
        said: The task in its conversation.
        alone: Whether no subordinate is asked; then a tool that only might fit is used too.
    """
    fitting = _fitting(tools, said, alone)
    trade = _trade(tools)
    filled = [(tool, fill(tool, said, trade)) for tool in fitting]
    calls = _apart(_calls(filled), tools)
    if calls or not (alone or fitting):
        return Choice(calls)
    # The fitting tools lack arguments, or none fits: fall back to a look-up, which does no harm.
    harmless = [tool for tool in tools if not _acts(tool) and tool not in fitting]
    if fitting:
        harmless = [tool for tool in harmless if _shares_a_noun(tool, fitting)]
    could = [(tool, fill(tool, said, trade)) for tool in harmless]
    able = next(((tool, one) for tool, one in could if one.calls), None)
    if able:
        return Choice(_calls([able]))
    return _lacking(filled) or _lacking([(t, one) for t, one in could if one.given]) or Choice()


def _calls(filled: Iterable[tuple[Tool, Filled]]) -> Calls:
    return tuple((tool.name, arguments) for tool, one in filled for arguments in one.calls)


def _trade(tools: Iterable[Tool]) -> frozenset[str]:
    return frozenset(word for tool in tools for word in _name(tool))


def _apart(calls: Calls, tools: Sequence[Tool]) -> Calls:
    """Return the calls without look-ups of values that an act already uses.

    In "reserve at Roscioli" the name is a restaurant, not a place to search in.
    """
    acting = {tool.name for tool in tools if _acts(tool)}
    used = {value for name, given in calls if name in acting for value in map(str, given.values())}
    return tuple(
        (name, given)
        for name, given in calls
        if name in acting or not used.intersection(map(str, given.values()))
    )


def _lacking(filled: Iterable[tuple[Tool, Filled]]) -> Choice | None:
    return next((Choice((), one.missing, tool.name) for tool, one in filled if one.missing), None)


def _fitting(tools: Sequence[Tool], said: Said, alone: bool) -> list[Tool]:
    """Return the tools that the task names, the best first, without those that fit far worse."""
    shared = Counter(word for tool in tools for word in _name(tool) | _summary(tool))
    scores = {tool.name: _score(tool, shared, said, alone) for tool in tools}
    best = {
        acts: max((scores[t.name] for t in tools if _acts(t) is acts), default=0.0)
        for acts in (True, False)
    }
    fitting = [tool for tool in tools if scores[tool.name] > best[_acts(tool)] / 2]
    return sorted(fitting, key=lambda tool: -scores[tool.name])[:MOST_TOOLS]


def _score(tool: Tool, shared: Counter[str], said: Said, alone: bool) -> float:
    """Return 2 points for each of the tool's name words in the task, 1 for each of its summary.

    A generic word such as "find" or "get" counts half a point, enough to break ties. Words that
    several tools share count nothing.
    """
    own = frozenset(word for word in _name(tool) | _summary(tool) if shared[word] == 1)
    wished = _wished(said)
    by_name = own & _name(tool) & wished
    if _acts(tool):
        act = _asks_to_act(tool, own & _name(tool), said, alone)
        return 2.0 * max(len(by_name), 1) if act else 0.0
    telling = 2.0 * len(by_name - GENERIC) + 0.5 * len(by_name & GENERIC)
    return telling + len((own - _name(tool)) & wished)


def _asks_to_act(tool: Tool, own: frozenset[str], said: Said, alone: bool) -> bool:
    """Return whether a clause requests the tool's act, by its noun, its verb or a synonym.

    In "book a flight and find a restaurant" the verb does not mean a tool that reserves tables:
    beside the verb, a clause needs another of the tool's words, or one of the part that is meant;
    if the whole task is for this agent alone, the verb suffices. A question requests no act.
    """
    verbs = _name(tool) & _ACTS
    verbs = verbs.union(*(group for group in _SAME_ACT if group & verbs))
    nouns = own - _ACTS - GENERIC
    part = _stems(" ".join(said.part))
    about = (_name(tool) | _summary(tool) | part) - _ACTS - GENERIC
    task = said.task
    given = marks(task)
    for clause in split_clauses(task.tokens):
        stems = {task.tokens[i].stem for i in clause if given[i] is Mark.WISHED}
        whole = alone and not said.part
        asked = verbs & stems and (whole or about & stems or len(_name(tool) & stems) > 1)
        if (asked or nouns & stems) and task.tokens[clause.start].word not in QUESTION_OPENERS:
            return True
    # An answer to our own question, "Roscioli", need not repeat what it is for.
    return bool(nouns & (part - {token.stem for token in task.tokens}))


def _shares_a_noun(tool: Tool, fitting: Sequence[Tool]) -> bool:
    return any((_name(tool) & _name(other)) - _ACTS - GENERIC for other in fitting)


def _acts(tool: Tool) -> bool:
    return bool(_name(tool) & _ACTS)


def _wished(said: Said) -> frozenset[str]:
    """Return the stems of the task that are requested, including the part that is meant."""
    marked = zip(said.task.tokens, marks(said.task), strict=True)
    wished = {token.stem for token, mark in marked if mark >= Mark.FRAME and token.telling}
    return frozenset(wished) | _stems(" ".join(said.part))


def _name(tool: Tool) -> frozenset[str]:
    return _stems(tool.name)


def _summary(tool: Tool) -> frozenset[str]:
    return _stems(tool.summary) - GENERIC


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in words(text) if word not in STOPWORDS)
