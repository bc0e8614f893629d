"""Chooses among an agent's own tools those that the task names and has arguments for.

`reply_plan` calls it once per turn. A tool that acts on the world, such as one that reserves a
table, needs its own verb or noun in the task; a look-up needs less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from echelons.language.clauses import split_clauses
from echelons.language.lexicon import QUESTION_OPENERS, to_word_set
from echelons.language.team_index import GENERIC_STEMS
from echelons.language.word_marks import WordMark, mark_words
from echelons.models.planner.arguments import FilledArguments, fill_arguments
from echelons.models.planner.task_context import TaskContext
from echelons.models.planner.toolbox import ToolSpec
from echelons.text.stemming import STOPWORDS, extract_words, stem

MAX_TOOLS: Final = 5
"""Different tools called at once at most."""

_ACT_SYNONYMS: Final = tuple(
    frozenset(map(stem, to_word_set(group)))
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
_ACT_STEMS: Final = frozenset().union(*_ACT_SYNONYMS)

NamedCalls = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True)
class ToolChoice:
    """The calls of the agent's own tools.

    Attributes:
        calls: Name and arguments of each call.
        missing: If no call is possible: the parameters that the fitting tool lacks.
        tool: Name of the tool that lacks them.
    """

    calls: NamedCalls = ()
    missing: tuple[str, ...] = ()
    tool: str = ""


def choose_tools(tools: Sequence[ToolSpec], said: TaskContext, alone: bool) -> ToolChoice:
    """Return the calls of `tools` that fit the task.

    If the agent works `alone`, calling no subordinate, a tool that only might fit is used too.
    """
    fitting = _rank_tools(tools, said, alone)
    trade = frozenset[str]().union(*map(_get_name_stems, tools))
    filled = [(tool, fill_arguments(tool, said, trade)) for tool in fitting]
    calls = _drop_redundant_lookups(_collect_calls(filled), tools)
    if calls or not (alone or fitting):
        return ToolChoice(calls)
    # The fitting tools lack arguments, or none fits: fall back to a look-up, which does no harm.
    harmless = [tool for tool in tools if not _is_acting(tool) and tool not in fitting]
    if fitting:
        nouns = frozenset[str]().union(*map(_get_name_stems, fitting)) - _ACT_STEMS - GENERIC_STEMS
        harmless = [tool for tool in harmless if _get_name_stems(tool) & nouns]
    could = [(tool, fill_arguments(tool, said, trade)) for tool in harmless]
    for tool, one in could:
        if one.calls:
            return ToolChoice(_collect_calls([(tool, one)]))
    for tool, one in (*filled, *(each for each in could if each[1].given)):
        if one.missing:
            return ToolChoice((), one.missing, tool.name)
    return ToolChoice()


def _collect_calls(filled: Iterable[tuple[ToolSpec, FilledArguments]]) -> NamedCalls:
    return tuple((tool.name, arguments) for tool, one in filled for arguments in one.calls)


def _drop_redundant_lookups(calls: NamedCalls, tools: Sequence[ToolSpec]) -> NamedCalls:
    """Return the calls without look-ups of values that an act already uses.

    In "reserve at Roscioli" the name is a restaurant, not a place to search in.
    """
    acting = {tool.name for tool in tools if _is_acting(tool)}
    used = {value for name, given in calls if name in acting for value in map(str, given.values())}
    return tuple(
        (name, given)
        for name, given in calls
        if name in acting or not used.intersection(map(str, given.values()))
    )


def _rank_tools(tools: Sequence[ToolSpec], said: TaskContext, alone: bool) -> list[ToolSpec]:
    """Return the tools that the task names, the best first, without those that fit far worse."""
    stems = [_get_name_stems(tool) | _get_summary_stems(tool) for tool in tools]
    shared = Counter(chain.from_iterable(stems))
    scores = {tool.name: _score_tool(tool, shared, said, alone) for tool in tools}
    best = {
        acts: max((scores[t.name] for t in tools if _is_acting(t) is acts), default=0.0)
        for acts in (True, False)
    }
    fitting = [tool for tool in tools if scores[tool.name] > best[_is_acting(tool)] / 2]
    return sorted(fitting, key=lambda tool: -scores[tool.name])[:MAX_TOOLS]


def _score_tool(tool: ToolSpec, shared: Counter[str], said: TaskContext, alone: bool) -> float:
    """Return 2 points for each of the tool's name words in the task, 1 for each of its summary.

    A generic word such as "find" or "get" counts half a point, enough to break ties. Words that
    several tools share count nothing.
    """
    name = _get_name_stems(tool)
    own = frozenset(word for word in name | _get_summary_stems(tool) if shared[word] == 1)
    wished = _get_requested_stems(said)
    by_name = own & name & wished
    if _is_acting(tool):
        act = _is_act_requested(tool, own & name, said, alone)
        return 2.0 * max(len(by_name), 1) if act else 0.0
    telling = 2.0 * len(by_name - GENERIC_STEMS) + 0.5 * len(by_name & GENERIC_STEMS)
    return telling + len((own - name) & wished)


def _is_act_requested(tool: ToolSpec, own: frozenset[str], said: TaskContext, alone: bool) -> bool:
    """Return whether a clause requests the tool's act, by its noun, its verb or a synonym.

    In "book a flight and find a restaurant" the verb does not mean a tool that reserves tables:
    beside the verb, a clause needs another of the tool's words, or one of the part that is meant;
    if the whole task is for this agent alone, the verb suffices. A question requests no act.
    """
    name = _get_name_stems(tool)
    verbs = name & _ACT_STEMS
    verbs = verbs.union(*(group for group in _ACT_SYNONYMS if group & verbs))
    nouns = own - _ACT_STEMS - GENERIC_STEMS
    part = _stem_content_words(" ".join(said.part))
    about = (name | _get_summary_stems(tool) | part) - _ACT_STEMS - GENERIC_STEMS
    task = said.task
    given = mark_words(task)
    for clause in split_clauses(task.tokens):
        stems = {task.tokens[i].stem for i in clause if given[i] is WordMark.REQUESTED}
        whole = alone and not said.part
        asked = verbs & stems and (whole or about & stems or len(name & stems) > 1)
        if (asked or nouns & stems) and task.tokens[clause.start].word not in QUESTION_OPENERS:
            return True
    # An answer to our own question, "Roscioli", need not repeat what it is for.
    return bool(nouns & (part - {token.stem for token in task.tokens}))


def _is_acting(tool: ToolSpec) -> bool:
    return bool(_get_name_stems(tool) & _ACT_STEMS)


def _get_requested_stems(said: TaskContext) -> frozenset[str]:
    """Return the stems of the task that are requested, including the part that is meant."""
    return _stem_content_words(" ".join(said.part)).union(
        token.stem
        for token, mark in zip(said.task.tokens, mark_words(said.task), strict=True)
        if mark >= WordMark.CIRCUMSTANCE and token.is_content_word
    )


def _get_name_stems(tool: ToolSpec) -> frozenset[str]:
    return _stem_content_words(tool.name)


def _get_summary_stems(tool: ToolSpec) -> frozenset[str]:
    return _stem_content_words(tool.summary) - GENERIC_STEMS


def _stem_content_words(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in extract_words(text) if word not in STOPWORDS)
