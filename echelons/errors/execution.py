"""Errors of a run: delegations, tools, workspaces and threads."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from echelons.errors.base import EchelonsError, escape_braces


class DelegationError(EchelonsError):
    """A request is not passed on.

    Attributes:
        code: Code that the reason of the response begins with.
    """

    code = "refused"

    @property
    def reason(self) -> str:
        """The reason in the response to the superior."""
        return f"{self.code}: {self}"


class SpawnRefused(DelegationError):
    """A subordinate cannot be made at run time.

    Attributes:
        why: The reason against it, with the limit and what to do.
    """

    code = "spawn"

    def __init__(self, why: str) -> None:
        super().__init__(
            "{why}",
            why=why,
        )


class RoutingError(EchelonsError):
    """A task cannot be routed as requested."""


class ControlError(EchelonsError):
    """An order cannot be carried out; nothing was changed."""


class UnknownPath(ControlError, RoutingError):
    """A name or path leads to no agent of the tree.

    Attributes:
        path: The refused value.
        known: The names or paths of the tree.
    """

    code = "unknown_path"

    def __init__(self, path: str, known: Sequence[str]) -> None:
        more = f" and {len(known) - 20} more" if len(known) > 20 else ""
        listed = escape_braces(", ".join(known[:20]) or "none")
        nearest = escape_braces(", ".join(_find_nearest(path, known)))
        meant = f"the nearest: {nearest}; " if nearest else ""
        super().__init__(
            f"no agent {{path:short}} in the tree; {meant}there are: {listed}{more}",
            path=path,
            known=tuple(known),
        )


def _find_nearest(path: str, known: Sequence[str]) -> list[str]:
    """Return the paths that end as another one does, or else those most like it."""
    name = str(path).rpartition("/")[2]
    same = [other for other in known if other.rpartition("/")[2] == name]
    return same[:3] or get_close_matches(str(path), list(map(str, known)), 3, 0.7)


def too_wide(wanted: int, begun: int, limit: int) -> DelegationError:
    """Return the error of a message with too many calls side by side."""
    more = "1 more is" if wanted == 1 else "{wanted} more are"
    return DelegationError(
        f"{{begun}} of {{limit}} calls side by side in one message, and {more} wanted; make the "
        "others in a later message",
        code="width",
        wanted=wanted,
        begun=begun,
        limit=limit,
    )


def matcher_failed(matcher: str, why: str) -> RoutingError:
    """Return the error of a matcher that raised, or returned an invalid match."""
    return RoutingError(
        "the matcher {matcher} failed: {why}; route with another one, such as LexicalMatcher",
        code="matcher_failed",
        matcher=matcher,
        why=why,
    )


def deriver_failed(agent: str, why: str) -> RoutingError:
    """Return the error of capabilities that could not be derived."""
    return RoutingError(
        "what {agent!r} can do could not be derived: {why}; derive it in another way, or declare "
        "its capabilities",
        code="deriver_failed",
        agent=agent,
        why=why,
    )


def message_refused(path: str, why: str) -> ControlError:
    """Return the error of a message to an agent that cannot read it."""
    return ControlError(
        "{path:short} was sent no message: {why}. Nothing was stored",
        code="message_refused",
        path=path,
        why=why,
    )


def not_paused(path: str, paused: Sequence[str]) -> ControlError:
    """Return the error of a path where there is no pause to lift."""
    return ControlError(
        "nothing is paused at {path:short} or below it; paused are: {paused}",
        code="not_paused",
        path=path,
        paused=tuple(paused),
    )


class ToolRefusal(EchelonsError):
    """A safe tool refuses its arguments, or cannot do what they ask.

    The tools answer a model with its name and message; functions that they are made of raise it.
    """


class CallCutShort(EchelonsError):
    """A call was given up before its outcome was known: it may have happened.

    A tool that raises it has its call treated like one that a crash cut short: a person is asked
    what came of it, unless it is idempotent, or changes nothing.

    Attributes:
        why: Why it was given up.
    """

    code = "call_cut_short"

    def __init__(self, why: str) -> None:
        super().__init__(
            "{why}; the call may have happened",
            why=why,
        )


def address_refused(url: str, why: str) -> ToolRefusal:
    """Return the refusal of a URL that is invalid, or may not be fetched."""
    return ToolRefusal(
        "{url:short} is not fetched: {why}",
        code="address_refused",
        url=url,
        why=why,
    )


def fetch_failed(url: str, why: str) -> ToolRefusal:
    """Return the error of a server that does not answer in time, or with no text."""
    return ToolRefusal(
        "{url:short} cannot be fetched: {why}",
        code="fetch_failed",
        url=url,
        why=why,
    )


def search_failed(provider: str, why: str, wait: float = 0.0) -> ToolRefusal:
    """Return the error of a provider of a search; `wait` is 0 if it does not say how long."""
    return ToolRefusal(
        f"{{provider}} cannot be asked: {{why}}{'; ask again in {wait:g} s' if wait else ''}",
        code="search_failed",
        provider=provider,
        why=why,
        wait=wait,
    )


class WorkspaceError(EchelonsError):
    """A workspace cannot be used, or a file of it cannot be read or changed."""


class FileRefused(WorkspaceError):
    """A file of a workspace cannot be read or changed, or its path may lead out of it.

    Attributes:
        path: The file.
        why: The reason, and what to do.
    """

    code = "file_refused"


def no_workspace() -> WorkspaceError:
    """Return the error of files where there is no workspace."""
    return WorkspaceError(
        "no workspace: {why}",
        code="no_workspace",
        why="Session(workspace=…) or `echelons run --workspace` names its folder",
    )


def file_refused(path: str, why: str) -> FileRefused:
    """Return the error of a file that cannot be read or changed."""
    return FileRefused(
        "{path:quoted}: {why}",
        path=path,
        why=why,
    )


def file_too_large(path: str, why: str, size: int, limit: int) -> FileRefused:
    """Return the error of a file, or of all changes of an agent, that are too large."""
    return FileRefused(
        "{path:quoted}: {why}: {size} instead of {limit} at most",
        code="file_too_large",
        path=path,
        why=why,
        size=size,
        limit=limit,
    )


def note_refused(name: str, why: str) -> WorkspaceError:
    """Return the error of a note that cannot be written or read."""
    return WorkspaceError(
        "note {name}: {why}",
        code="note_refused",
        name=name,
        why=why,
    )


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


def missing_tool(agent: str, names: Sequence[str]) -> MissingAgents:
    """Return the error of a spawned agent whose tools its superior lacks in this process."""
    return MissingAgents(
        "{agent!r} was spawned with the tools {names:each}, which its superior does not have in "
        "this process; declare them again. Nothing was changed",
        code="missing_tool",
        agent=agent,
        names=tuple(names),
        profile="",
    )


def missing_profile(agent: str, profile: str) -> MissingAgents:
    """Return the error of a spawned agent whose profile is not known in this process."""
    return MissingAgents(
        "{agent!r} was spawned with the profile {profile!r}, which Session(spawnable=...) does not "
        "name; declare them again. Nothing was changed",
        code="missing_tool",
        agent=agent,
        names=(),
        profile=profile,
    )


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


def checkpoint_below_root(checkpoint_ns: str, root: str) -> ThreadError:
    """Return the error of a run that is to begin from a checkpoint of a subordinate."""
    return ThreadError(
        "a run cannot begin from this checkpoint of a subordinate ({checkpoint_ns:short}): all "
        "agents of that step would run again, with their tools. Begin from the root's, {root!r}; "
        "or change the subordinate's state with update_state, and resume with the thread_id "
        "alone. Nothing was stored",
        code="checkpoint_below_root",
        checkpoint_ns=checkpoint_ns,
        root=root,
    )


def thread_not_named(known: Sequence[str]) -> ThreadError:
    """Return the error of several threads, none of which was named."""
    return ThreadError(
        "several threads may be meant: {known}; name one with --thread",
        code="thread_not_named",
        known=tuple(known),
    )


def thread_ambiguous(what: str, commands: Sequence[str]) -> ThreadError:
    """Return the error of something that stands in a thread and in its copies.

    Args:
        what: What was named.
        commands: The command for it of each of the threads.
    """
    return ThreadError(
        "{what} is in several threads, one of which is a copy; nothing was changed. Name the one "
        f"that is meant: {'; or '.join(commands)}",
        code="thread_ambiguous",
        what=what,
        commands=tuple(commands),
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
