"""Errors of threads, their turns and calls: which one, and what it can do now."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


class ThreadNotFound(EchelonsError):
    """There is no thread of that id or name in the database.

    Attributes:
        thread: The id or name as it was given.
    """

    thread: str
    message = (
        "there is no thread {thread!r} in this database; list them with `echelons threads` or "
        "ThreadStore.roots()"
    )


class UnknownMessage(EchelonsError):
    """A thread has no message of that id.

    Attributes:
        message_id: The id as it was given.
        thread: Name of the thread.
    """

    message_id: object
    thread: str
    message = (
        "thread {thread!r} has no message {message_id:short}; list those that can be hidden with "
        "`echelons repair` or Session.repair()"
    )


class CheckpointNotFound(EchelonsError):
    """A config names a checkpoint that its thread does not have.

    Attributes:
        checkpoint_id: The id as it was given.
        thread_id: LangGraph's id of the thread.
        checkpoint_ns: LangGraph's namespace in the thread; empty for the root's.
    """

    checkpoint_id: object
    thread_id: str
    checkpoint_ns: str = ""
    message = (
        "thread {thread_id!r} has no checkpoint {checkpoint_id:short} in the namespace "
        "{checkpoint_ns!r}; take a config of get_state_history(), or leave out checkpoint_id for "
        "the latest. Nothing was stored"
    )


class ThreadNotNamed(EchelonsError):
    """There are several threads, and none was named.

    Attributes:
        known: Their names or ids.
    """

    known: Sequence[str]
    message = "several threads may be meant: {known}; name one with --thread"


class ThreadTaken(EchelonsError):
    """The id that a thread is to be copied to is in use.

    Attributes:
        thread_id: LangGraph's id of the existing thread.
    """

    thread_id: str
    message = (
        "thread {thread_id!r} is there already; copy to another id, or delete it first. Nothing "
        "was changed"
    )


class MissingAgents(EchelonsError):
    """A stored run waits in agents or nodes that the tree no longer has.

    Attributes:
        thread: The name of the root's thread, or its id if it has none.
        missing: What is missing, as paths.
    """

    thread: str
    missing: Sequence[str]
    message = (
        "thread {thread!r} waits in {missing}, which this tree does not have; resume it with "
        "the tree that started it, or start another thread. Nothing was changed"
    )


class MissingTool(EchelonsError):
    """A spawned agent has a tool or a profile that this process does not declare.

    Attributes:
        agent: The agent's name.
        names: The tools; empty if it is the profile.
        profile: Its profile; empty for none.
    """

    agent: str
    names: Sequence[str]
    profile: str

    def _describe(self) -> str:
        if self.names:
            owner = f"the profile {self.profile!r}" if self.profile else "its superior"
            named = ", ".join(map(repr, self.names))
            lack = f"the tools {named}, which {owner} does not have in this process"
        else:
            lack = f"the profile {self.profile!r}, which Session(spawnable=...) does not name"
        return f"{self.agent!r} was spawned with {lack}; declare them again. Nothing was changed"


class UnfinishedTurn(EchelonsError):
    """The thread's last turn was cut short, so it takes no new task yet.

    Attributes:
        thread: The thread's name or id.
    """

    thread: str
    message = (
        "the last turn of thread {thread!r} is not finished; go on with it first (`echelons "
        "resume`, Session.resume()), or use another thread"
    )


class TurnReused(EchelonsError):
    """A turn's id was used before on the thread, for another task or with another context.

    Attributes:
        turn_id: The id.
        thread: The thread's name or id.
    """

    turn_id: str
    thread: str
    message = (
        "turn {turn_id!r} of thread {thread!r} was another task, or had another request_context; "
        "send the same task with the same context to get its answer again, or give the new task an "
        "id of its own. Nothing was changed"
    )


class NothingToResume(EchelonsError):
    """The thread has no turn to resume.

    Attributes:
        thread: The thread's name or id.
        open: Ids of questions that its agents have asked, and for whose answers no turn waits.
    """

    thread: str
    open: Sequence[str] = ()
    message = "thread {thread!r} has nothing to resume; send it a task"

    def _describe(self) -> str:
        if not self.open:
            return super()._describe()
        return self._fill(
            "thread {thread!r} has nothing to resume: its turn is finished, and no turn waits for "
            "an answer to {open}; answer (`echelons inbox`, `echelons answer`), and the agent that "
            "has asked is told in the next turn, or send it a task"
        )


class NoOpenThread(EchelonsError):
    """No thread of a database is open: none is unfinished, or none asks anything.

    Attributes:
        database: The database.
        state: What none of them does or is.
    """

    database: str
    state: str
    message = (
        "no thread in {database!r} {state}; `echelons threads` lists them, `echelons run` begins "
        "a turn"
    )


class RunFailed(EchelonsError):
    """A turn stopped at an error of a model or a function, and can be resumed.

    Attributes:
        thread: The thread's name or id.
        reason: What went wrong, in a line.
    """

    thread: str
    reason: str
    message = (
        "the turn of thread {thread!r} stopped at {reason}; all that was done before is stored, "
        "and `echelons resume` goes on from there"
    )


class NoRequest(EchelonsError):
    """A request was asked for outside of the work of an agent.

    Attributes:
        function: The function that was called.
    """

    function: str
    message = (
        "{function}() was called outside of the work of an agent; call it in a tool, a function, a "
        "Runnable or a graph that an agent of a tree runs"
    )


class NoCall(EchelonsError):
    """The idempotency key or the time left was requested outside of any call.

    Attributes:
        given: The argument, shortened.
    """

    given: str
    message = (
        "{given} belongs to no call of an agent; give idempotency_key() and time_left() the "
        "ToolRuntime that the tool was called with, or its config"
    )
