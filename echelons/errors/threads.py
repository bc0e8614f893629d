"""Errors of threads, their turns and calls: which one, and what it can do now."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


class ThreadError(EchelonsError):
    """A thread, a turn or a call is not there, or cannot do what was requested; nothing changed."""


class ThreadNotFound(ThreadError):
    """There is no thread of that id or name in the database.

    Attributes:
        thread: The id or name as it was given.
    """

    code = "thread_not_found"

    def __init__(self, thread: str) -> None:
        super().__init__(
            "there is no thread {thread!r} in this database; list them with `echelons threads` "
            "or ThreadStore.roots()",
            thread=thread,
        )


class MissingAgents(ThreadError):
    """A stored run waits in agents, nodes or tools that the tree no longer has.

    Attributes:
        thread: The name of the root's thread, or its id if it has none.
        missing: The missing agents, as paths.
    """

    code = "missing_agents"


class UnfinishedTurn(ThreadError):
    """The thread's last turn was cut short, so it takes no new task yet.

    Attributes:
        thread: The thread's name or id.
    """

    code = "unfinished_turn"

    def __init__(self, thread: str) -> None:
        super().__init__(
            "the last turn of thread {thread!r} is not finished; go on with it first (`echelons "
            "resume`, Session.resume()), or use another thread",
            thread=thread,
        )


class NothingToResume(ThreadError):
    """The thread has no turn to resume.

    Attributes:
        thread: The thread's name or id.
        open: Ids of questions that its agents have asked, and for whose answers no turn waits.
    """

    code = "nothing_to_resume"

    def __init__(self, thread: str, open: Sequence[str] = ()) -> None:
        text = "thread {thread!r} has nothing to resume; send it a task"
        if open:
            text = (
                "thread {thread!r} has nothing to resume: its turn is finished, and no turn waits "
                "for an answer to {open}; answer (`echelons inbox`, `echelons answer`), and the "
                "agent that has asked is told in the next turn, or send it a task"
            )
        super().__init__(text, thread=thread, open=tuple(open))


def checkpoint_not_found(
    checkpoint_id: object, thread_id: str, checkpoint_ns: str = ""
) -> ThreadError:
    """Return the error of a config that names a checkpoint its thread does not have."""
    return ThreadError(
        "thread {thread_id!r} has no checkpoint {checkpoint_id:short} in the namespace "
        "{checkpoint_ns!r}; take a config of get_state_history(), or leave out checkpoint_id for "
        "the latest. Nothing was stored",
        code="checkpoint_not_found",
        checkpoint_id=checkpoint_id,
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
    )


def thread_not_named(known: Sequence[str]) -> ThreadError:
    """Return the error of several threads, none of which was named."""
    return ThreadError(
        "several threads may be meant: {known}; name one with --thread",
        code="thread_not_named",
        known=tuple(known),
    )


def no_open_thread(database: str, state: str) -> ThreadError:
    """Return the error of a database in which no thread is in a state."""
    return ThreadError(
        "no thread in {database!r} {state}; `echelons threads` lists them, `echelons run` begins "
        "a turn",
        code="no_open_thread",
        database=database,
        state=state,
    )


def no_call(given: str) -> ThreadError:
    """Return the error of an idempotency key, or time left, outside of any call."""
    return ThreadError(
        "{given} belongs to no call of an agent; give idempotency_key() and time_left() the "
        "ToolRuntime that the tool was called with, or its config",
        code="no_call",
        given=given,
    )
