"""What a dismissal has ended, as text and JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelons.checkpoints.threads.dismissal import DismissedSubtree


def format_dismissal(done: DismissedSubtree, thread: str) -> Iterator[str]:
    """Yield the lines about a dismissal."""
    dismissal = done.dismissal
    how = " gracefully" if dismissal.graceful else ""
    if not done.is_new:
        yield f"{dismissal.path} was dismissed{how} already, at {dismissal.at} by {dismissal.by}"
        return
    below = f" and {len(done.agents) - 1} below it" if len(done.agents) > 1 else ""
    yield f"dismissed {dismissal.path}{below}{how} in thread {thread}"
    for call in done.outcome_unknown:
        yield f"outcome unknown: the call of {call.tool} by {call.path}, which was under way"
    for question in done.questions:
        yield f"withdrawn: question {question}"
    for path in done.changes:
        yield f"the changes of {path} stay, for {done.heir} to merge"


def dismissal_to_json(done: DismissedSubtree, thread: str, *, running: bool) -> dict[str, Any]:
    """Return a dismissal as a JSON object."""
    dismissal = done.dismissal
    return {
        "dismissed": dismissal.path,
        "thread": thread,
        "new": done.is_new,
        "graceful": dismissal.graceful,
        "by": dismissal.by,
        "at": dismissal.at,
        "agents": list(done.agents),
        "outcome_unknown": [asdict(call) for call in done.outcome_unknown],
        "questions": list(done.questions),
        "changes": list(done.changes),
        "heir": done.heir,
        "running": running,
    }
