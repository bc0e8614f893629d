"""Errors of threads and their turns: which is meant, and what it can do now.

Raised by sessions, the store of threads and the commands.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


class ThreadNotFound(EchelonsError):
    """There is no thread of that id or name in the database.

    Attributes:
        thread: The id or name as it was given.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(
            f"there is no thread {thread!r} in this database; "
            "list them with `echelons threads` or ThreadStore.roots()"
        )


class ThreadNotNamed(EchelonsError):
    """Several threads may be meant, and none was named.

    Attributes:
        known: Their names or ids.
    """

    def __init__(self, known: Sequence[str]) -> None:
        self.known = tuple(known)
        super().__init__(
            f"several threads may be meant: {', '.join(self.known)}; name one with --thread"
        )


class ThreadTaken(EchelonsError):
    """A thread was to be copied to an id that has something stored under it.

    Attributes:
        thread_id: LangGraph's id of the thread that is there.
    """

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(
            f"thread {thread_id!r} is there already; copy to another id, or delete it first. "
            "Nothing was changed"
        )


class MissingAgents(EchelonsError):
    """A stored run waits in agents or nodes that the tree does not have any more.

    Attributes:
        thread_id: The root's thread.
        missing: What is missing, as paths.
    """

    def __init__(self, thread_id: str, missing: Sequence[str]) -> None:
        self.thread_id = thread_id
        self.missing = tuple(missing)
        super().__init__(
            f"thread {thread_id!r} waits in {', '.join(self.missing)}, which this tree does not "
            "have; resume it with the tree that started it, or start another thread. "
            "Nothing was changed"
        )


class UnfinishedTurn(EchelonsError):
    """The thread's last turn was cut short, so it takes no new task yet.

    Attributes:
        thread: The thread's name or id.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(
            f"the last turn of thread {thread!r} is not finished; go on with it first "
            "(`echelons resume`, Session.resume()), or use another thread"
        )


class TurnReused(EchelonsError):
    """A turn's id was used before on the thread, for another task.

    Attributes:
        turn_id: The id.
        thread: The thread's name or id.
    """

    def __init__(self, turn_id: str, thread: str) -> None:
        self.turn_id = turn_id
        self.thread = thread
        super().__init__(
            f"turn {turn_id!r} of thread {thread!r} was another task; send the same task to get "
            "its answer again, or give the new task an id of its own. Nothing was changed"
        )


class NothingToResume(EchelonsError):
    """The thread has no turn to go on with.

    Attributes:
        thread: The thread's name or id.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(f"thread {thread!r} has nothing to resume; send it a task")


class NothingUnfinished(EchelonsError):
    """No thread of a database has a turn to go on with.

    Attributes:
        database: The database.
    """

    def __init__(self, database: str) -> None:
        self.database = database
        super().__init__(
            f"no thread in {database!r} is unfinished; `echelons run` begins a turn, "
            "`echelons inbox` shows what waits for an answer"
        )


class RunFailed(EchelonsError):
    """A turn stopped at an error of a model or of a function, and can go on.

    Attributes:
        thread: The thread's name or id.
        reason: What went wrong, in a line.
    """

    def __init__(self, thread: str, reason: str) -> None:
        self.thread = thread
        self.reason = reason
        super().__init__(
            f"the turn of thread {thread!r} stopped at {reason}; all that was done before is "
            "stored, and `echelons resume` goes on from there"
        )
