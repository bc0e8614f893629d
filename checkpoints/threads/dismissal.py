"""A plan that dismisses an agent and all below it, for good, from outside of its tree's run.

Used by sessions and the command line; any process with the saver and the thread's id can run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.coordination.dismissal_ledger import (
    CommittedDismissal,
    CutCall,
    commit_dismissal,
    read_dismissals,
    read_hidden_dismissals,
)
from echelons.checkpoints.coordination.orders import is_under
from echelons.checkpoints.queries import LedgerQuery, OneCheckpoint, ReadPlan
from echelons.checkpoints.thread_events import WriteLocation
from echelons.checkpoints.threads.agent_states import read_registry
from echelons.checkpoints.threads.answer_outbox import read_open_questions
from echelons.checkpoints.threads.control import locate_order
from echelons.checkpoints.threads.thread_status import read_thread_status
from echelons.delegation.mail import USER
from echelons.guards.dismissals import Dismissal
from echelons.tree.agent_registry import AgentKind, AgentState


@dataclass(frozen=True, slots=True)
class DismissedSubtree:
    """The work that the dismissal of an agent has ended.

    Attributes:
        dismissal: The dismissal: the path, who has ordered it, and when.
        is_new: Whether it did not hold before.
        agents: Paths of the agents that were there and are dismissed with it, superiors first.
        outcome_unknown: Tool calls of theirs that were under way. In an event loop they are cut
            short; in threads they come to their end, and the trace has their results.
        questions: Ids of the questions to people that are withdrawn.
        changes: Paths of those of the agents that have proposed changes in the workspace, which
            stay.
        heir: The present owner: path of the nearest superior that is there, or `"the user"`.
    """

    dismissal: Dismissal
    is_new: bool
    agents: tuple[str, ...] = ()
    outcome_unknown: tuple[CutCall, ...] = ()
    questions: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    heir: str = USER


def dismiss_agent(
    thread_id: str, agent: str, kinds: Mapping[str, AgentKind], by: str, *, graceful: bool
) -> ReadPlan[DismissedSubtree]:
    """Dismiss an agent and all below it on a thread, for good.

    Args:
        thread_id: The root's thread.
        agent: The agent, by its path, else by its id, else by its name for people.
        kinds: Kinds of the members of the tree by path, superiors first.
        by: The person that dismisses it.
        graceful: Whether those at work finish their request.

    Raises:
        ThreadNotFound: The thread has never run, and nothing is known of its tree.
        UnknownPath: There is no such agent.
    """
    registry = yield from read_registry(thread_id, kinds)
    path = registry.get(agent).path
    there = [
        agent.path for agent in registry.subtree(path) if agent.state is not AgentState.DISMISSED
    ]
    saved: CheckpointTuple | None = yield OneCheckpoint(thread_id)
    where = WriteLocation(thread_id, "", "", thread_id, path)
    if saved is not None:
        where = locate_order(saved, thread_id, path)
    hidden = yield from read_hidden_dismissals(thread_id)
    before = yield from read_open_questions(thread_id)
    new = Dismissal(path, by, graceful=graceful)
    done: CommittedDismissal = yield LedgerQuery(
        lambda ledger: commit_dismissal(ledger, where, new, hidden)
    )
    left = {question.id for question in (yield from read_open_questions(thread_id))}
    status = yield from read_thread_status(thread_id)
    withdrawn = status.pending_work.dismissed
    # Whether a request may be sent is asked for the superior.
    gone = (
        question for question in before if question.id in withdrawn or is_under(question.path, path)
    )
    dismissals = yield from read_dismissals(thread_id)
    return DismissedSubtree(
        done.dismissal,
        done.is_new,
        tuple(there),
        done.cut_calls,
        tuple(question.id for question in gone if question.id not in left),
        heir=dismissals.find_heir(path) or USER,
    )
