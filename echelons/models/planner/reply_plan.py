"""Plans the next reply, given a turn and its tools.

This is the core of the planner; `offline_planner` makes a LangChain model of it. A turn has two
steps: all fitting calls are made at once, and then their results are composed. No call is
repeated, whatever its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from echelons.language.task_split import MOST_ASKED, Share, split
from echelons.language.team_index import Team
from echelons.language.tokens import Reading
from echelons.models.planner.answer_text import compose, contributions, failures, questions
from echelons.models.planner.conversation_context import Said
from echelons.models.planner.planner_turn import Turn
from echelons.models.planner.task_brief import Brief
from echelons.models.planner.tool_choice import Choice, choose
from echelons.models.planner.toolbox import DELEGATE, REPORT, Toolbox

Sharing = Callable[[Team, Reading, Sequence[str]], Sequence[Share]]
"""Selects the subordinates for a task, from the team, the task and the part that is meant."""

NAME = "offline planner"
NOTHING_FITS = "nothing here can do this"
NO_TASK = "there is no task"


@dataclass(frozen=True)
class Call:
    """One tool call.

    Attributes:
        name: The tool.
        args: Its arguments.
    """

    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """The planner's reply: a text, or calls.

    Attributes:
        text: The answer; empty if calls are made.
        calls: The calls to make, all at once.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()


def reply(turn: Turn, box: Toolbox, sharing: Sharing = split) -> Reply:
    """Return the next reply in `turn`."""
    if turn.called:
        return _conclude(turn, box)
    if not turn.said.task.text.strip():
        return _unable(box, NO_TASK)
    said, shares = _shared(turn.said, box.team, sharing)
    own = choose(box.own, said, alone=not shares) if box.own else Choice()
    asked = _delegations(said, shares, large=len(box.team) > MOST_ASKED)
    calls = (*asked, *(Call(name, arguments) for name, arguments in own.calls))
    if calls:
        return Reply(calls=calls)
    if own.missing:
        return _needs(box, own)
    return _unable(box, NOTHING_FITS)


def _shared(said: Said, team: Team, sharing: Sharing) -> tuple[Said, Sequence[Share]]:
    """Return the shares of the task; if there are none, those of the last task that had some."""
    shares = sharing(team, said.task, said.part)
    for reading in () if shares else said.earlier:
        if shares := sharing(team, reading, ()):
            meant = dict.fromkeys(word for share in shares for word in share.words)
            ground = said.ground or reading.text
            brief = replace(said.brief, part=tuple(meant), earlier=ground)
            return replace(said, brief=brief), shares
    if not shares and len(team) == len(team.unspecified) == 1:
        # An only subordinate that declares no capabilities may still be able to do it.
        return said, (Share(team.names[0], ()),)
    return said, shares


def _delegations(said: Said, shares: Sequence[Share], large: bool) -> Iterator[Call]:
    """Yield a call for each share, with the whole task and the part that is meant."""
    every = {word for share in shares for word in share.words}
    for share in shares:
        told = bool(said.part) or set(share.words) != every
        part = share.words if told and not large else ()
        brief = Brief(said.brief.task, part, said.ground)
        arguments = {"message": str(brief), "subordinate": share.name, "reset": False}
        yield Call(DELEGATE, arguments)


def _conclude(turn: Turn, box: Toolbox) -> Reply:
    """Return the final reply: the composed answers, as a report where it is not a plain success."""
    answers = [one for one in turn.answers if one.source != REPORT]
    text = compose(answers)
    if not box.reports or REPORT in turn.called:
        return Reply(text or NOTHING_FITS)
    given = contributions(answers)
    if asked := questions(answers):
        return _report("needs_input", text, reason=asked)
    if not given:
        return _report("unable", text or NOTHING_FITS, reason=failures(answers) or NOTHING_FITS)
    # A composed answer is as certain as the best of its contributions.
    sure = [one.confidence for one in given if one.confidence is not None]
    return _report("fulfilled", text, confidence=max(sure)) if sure else Reply(text)


def _needs(box: Toolbox, own: Choice) -> Reply:
    needed = f"{own.tool} needs to know: {', '.join(own.missing)}"
    if box.reports:
        return _report("needs_input", needed, reason=needed)
    return Reply(f"I cannot go on yet: {needed}.")


def _unable(box: Toolbox, reason: str) -> Reply:
    if box.reports:
        return _report("unable", f"Not available: {reason}", reason=reason)
    introduction = (
        f"I am the {NAME}: I match words and pass tasks on, but do not think for myself. "
        f"I cannot help with this: {reason}."
    )
    return Reply(" ".join([introduction, *_abilities(box)]))


def _abilities(box: Toolbox) -> Iterator[str]:
    if box.team.names:
        yield f"I can ask: {_some(box.team.names)}."
    if box.own:
        yield f"I can use: {_some([tool.name for tool in box.own])}."
    if not box.team.names and not box.own:
        yield "I have no subordinates and no tools; give this agent some, or a language model."


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_ASKED} more" if len(names) > MOST_ASKED else ""
    return ", ".join(names[:MOST_ASKED]) + more


def _report(status: str, result: str, reason: str = "", confidence: float | None = None) -> Reply:
    arguments: dict[str, Any] = {"status": status, "result": result}
    if confidence is not None:
        arguments["confidence"] = confidence
    if reason:
        arguments["reason"] = reason
    return Reply(calls=(Call(REPORT, arguments),))
