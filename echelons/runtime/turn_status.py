"""Status, reason and response of a turn, read from what is stored of it.

A turn that has ended is judged by its messages, any other by the work that it has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from langchain_core.messages import BaseMessage

from echelons.checkpoints.coordination.turns import EndStatus, TurnEnd
from echelons.checkpoints.queries import ReadPlan
from echelons.checkpoints.threads.thread_status import ThreadStatus, read_turn_messages
from echelons.delegation.request import DelegationRequest
from echelons.nodes.planning.final_answer import read_final_text
from echelons.nodes.planning.segment_end import build_halt_report, read_halt
from echelons.nodes.subordinate import build_response
from echelons.tree.names import PATH_SEPARATOR

TurnStatus: TypeAlias = EndStatus | Literal["asking", "paused", "running"]
"""The status of a turn at the end of a run; `running` if another run goes on with it."""


def read_turn_end(status: ThreadStatus, confidence: float) -> ReadPlan[TurnEnd]:
    """Return the end of a root's last turn, read from the checkpoint at its end."""
    messages = yield from read_turn_messages(status)
    return build_turn_end(status, messages, confidence)


def build_turn_end(
    status: ThreadStatus, messages: Sequence[BaseMessage], confidence: float
) -> TurnEnd:
    """Return the end of a turn.

    Args:
        status: Status of the thread at the end of the turn.
        messages: Messages of the turn, its task first.
        confidence: The root's declared confidence.
    """
    identity, last = status.identity, messages[-1] if messages else None
    if identity is None:
        return TurnEnd("", reason="nothing has run on the thread")
    request = DelegationRequest(
        id=identity.turn,
        origin=identity.agent,
        current=identity.agent,
        task=str(messages[0].text) if messages else "",
        path=identity.path,
    )
    halt = read_halt(last) if last else None
    report = build_halt_report(halt, messages[:-1]) if halt else None
    outcome = {"messages": messages, "response": report}
    response = build_response(request, outcome, confidence)
    ended: EndStatus = "finished"
    if halt:
        ended = halt.kind if halt.kind in ("stopped", "dismissed") else "limited"
    elif response.end == "length":
        ended = "limited"
    text = read_final_text(messages)
    if not text.strip() and response.result:
        text = response.result
    return TurnEnd(text, ended, response.reason, response)


def describe_open_turn(status: ThreadStatus, left: str = "") -> tuple[TurnStatus, str]:
    """Return the status of a turn that has not ended, and the reason.

    Args:
        status: Status of the thread.
        left: Why the run was left before its end; empty if it was not.
    """
    work = status.pending_work
    held = f"paused: {', '.join(sorted(work.paused))}" if work.paused else ""
    if left and (work.can_proceed or not work.questions):
        return "paused", f"{left}: the run ended after its current step; `resume` continues it"
    if work.questions:
        paths = dict.fromkeys(PATH_SEPARATOR.join(each.path) for each in work.questions)
        asked = f"question: an answer is needed by {', '.join(paths)}"
        return "asking", "; ".join(filter(None, (asked, held)))
    return "paused", held or "cut short: `resume` continues the turn"
