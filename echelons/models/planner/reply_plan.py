"""Plans the next reply, given a turn and its tools.

This is the core of the planner; `offline_planner` makes a LangChain model of it. A turn has two
steps: all fitting calls are made at once, and then their results are composed. No call is
repeated, whatever its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from echelons.language.task_shares import MAX_SUBORDINATES, TaskShare, split_task
from echelons.language.team_index import TeamIndex
from echelons.language.tokens import TokenizedText
from echelons.models.planner.answer_text import (
    compose_answer,
    describe_failures,
    describe_questions,
    select_contributions,
)
from echelons.models.planner.arguments import fill_arguments
from echelons.models.planner.planner_turn import PlannerTurn
from echelons.models.planner.task_context import TaskBrief, TaskContext
from echelons.models.planner.tool_choice import ToolChoice, choose_tools
from echelons.models.planner.toolbox import DELEGATE_TOOL, REPORT_TOOL, Toolbox
from echelons.text.stemming import extract_words, stem

TaskSharing = Callable[[TeamIndex, TokenizedText, Sequence[str]], Sequence[TaskShare]]
"""Selects the subordinates for a task, from the team, the task and the part that is meant."""

NearestNote = Callable[[str], str]
"""Returns what comes nearest to a task that is refused; empty if nothing does."""

PLANNER_NAME = "offline planner"
NOTHING_FITS = "nothing here can do this"
NO_TASK = "there is no task"


@dataclass(frozen=True)
class PlannedCall:
    """One call of the tool `name`."""

    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class PlannedReply:
    """The planner's reply: a text, or else calls that are made all at once."""

    text: str = ""
    calls: tuple[PlannedCall, ...] = ()


def plan_reply(
    turn: PlannerTurn,
    box: Toolbox,
    sharing: TaskSharing = split_task,
    describe_nearest: NearestNote | None = None,
) -> PlannedReply:
    """Return the next reply in `turn`."""
    if turn.called_tools:
        return _build_final_reply(turn, box)
    if not turn.context.task.text.strip():
        return _report_unable(box, NO_TASK)
    said, shares = _share_task(turn.context, box.team, sharing)
    own = choose_tools(box.own_tools, said, alone=not shares) if box.own_tools else ToolChoice()
    asked = _build_delegations(said, shares, box)
    calls = (*asked, *(PlannedCall(name, arguments) for name, arguments in own.calls))
    if calls:
        return PlannedReply(calls=calls)
    if not own.missing:
        nearest = describe_nearest(turn.context.task.text) if describe_nearest else ""
        return _report_unable(box, NOTHING_FITS, nearest)
    needed = f"{own.tool} needs to know: {', '.join(own.missing)}"
    if box.can_report:
        return _build_report("needs_input", needed, reason=needed)
    return PlannedReply(f"I cannot go on yet: {needed}.")


def _share_task(
    said: TaskContext, team: TeamIndex, sharing: TaskSharing
) -> tuple[TaskContext, Sequence[TaskShare]]:
    """Return the shares of the task; if there are none, those of the last task that had some."""
    shares = sharing(team, said.task, said.part)
    for reading in () if shares else said.earlier:
        if shares := sharing(team, reading, ()):
            meant = dict.fromkeys(word for share in shares for word in share.words)
            ground = said.background or reading.text
            brief = replace(said.brief, part=tuple(meant), earlier=ground)
            return replace(said, brief=brief), shares
    if not shares and len(team) == len(team.without_capabilities) == 1:
        # An only subordinate that declares no capabilities may still be able to do it.
        return said, (TaskShare(team.names[0], ()),)
    return said, shares


def _build_delegations(
    said: TaskContext, shares: Sequence[TaskShare], box: Toolbox
) -> Iterator[PlannedCall]:
    """Yield a call for each share, with the whole task and the part that is meant.

    A subordinate with a tool of its own is given what the task says of the tool's parameters.
    """
    large = len(box.team) > MAX_SUBORDINATES
    every = {word for share in shares for word in share.words}
    for share in shares:
        limited = bool(said.part) or set(share.words) != every
        part = share.words if limited and not large else ()
        brief = TaskBrief(said.brief.task, part, said.background)
        if tool := box.typed.get(share.name):
            trade = frozenset(map(stem, extract_words(tool.name)))
            if filled := fill_arguments(tool, replace(said, brief=brief), trade).calls:
                yield from (PlannedCall(tool.name, arguments) for arguments in filled)
                continue
        arguments = {"message": str(brief), "subordinate": share.name, "reset": False}
        yield PlannedCall(DELEGATE_TOOL, arguments)


def _build_final_reply(turn: PlannerTurn, box: Toolbox) -> PlannedReply:
    """Return the final reply: the composed answers, as a report where it is not a plain success."""
    answers = [one for one in turn.answers if one.source != REPORT_TOOL]
    text = compose_answer(answers)
    if not box.can_report or REPORT_TOOL in turn.called_tools:
        return PlannedReply(text or NOTHING_FITS)
    given = select_contributions(answers)
    if asked := describe_questions(answers):
        return _build_report("needs_input", text, reason=asked)
    if not given:
        why = describe_failures(answers) or NOTHING_FITS
        return _build_report("unable", text or NOTHING_FITS, reason=why)
    # A composed answer is as certain as the best of its contributions.
    sure = [one.confidence for one in given if one.confidence is not None]
    return _build_report("fulfilled", text, confidence=max(sure)) if sure else PlannedReply(text)


def _report_unable(box: Toolbox, reason: str, nearest: str = "") -> PlannedReply:
    nearest = f"\n\n{nearest}" if nearest else ""
    if box.can_report:
        return _build_report("unable", f"Not available: {reason}{nearest}", reason=reason)
    introduction = (
        f"I am the {PLANNER_NAME}: I match words and pass tasks on, but do not think for myself. "
        f"I cannot help with this: {reason}."
    )
    return PlannedReply(" ".join([introduction, *_describe_abilities(box)]) + nearest)


def _describe_abilities(box: Toolbox) -> Iterator[str]:
    if box.team.names:
        yield f"I can ask: {_list_names(box.team.names)}."
    if box.own_tools:
        yield f"I can use: {_list_names([tool.name for tool in box.own_tools])}."
    if not box.team.names and not box.own_tools:
        yield "I have no subordinates and no tools; give this agent some, or a language model."


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SUBORDINATES} more" if len(names) > MAX_SUBORDINATES else ""
    return ", ".join(names[:MAX_SUBORDINATES]) + more


def _build_report(
    status: str, result: str, reason: str = "", confidence: float | None = None
) -> PlannedReply:
    facts: dict[str, Any] = {"confidence": confidence, "reason": reason or None}
    given = {name: value for name, value in facts.items() if value is not None}
    call = PlannedCall(REPORT_TOOL, {"status": status, "result": result, **given})
    return PlannedReply(calls=(call,))
