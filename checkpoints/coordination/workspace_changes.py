"""`LedgerChanges`: what an agent would change in a workspace, kept in the ledger.

Each change has a record of its own under the root's thread, so it is copied and deleted with the
thread. As the folder, it has no branches: a run that goes back to an earlier checkpoint finds the
changes as they are now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, unquote

from echelons.checkpoints.coordination.turns import Turn, get_turn
from echelons.checkpoints.ledger import Ledger, RecordKind, Transaction, VersionedValue, build_key
from echelons.checkpoints.queries import LedgerQuery, ReadPlan
from echelons.errors import FileTooLarge, LedgerDamaged, UnknownPath
from echelons.guards.permissions import ALL_GRANTED, GRANT_KEY, Grant
from echelons.identity.lineage import require_identity
from echelons.tree.names import PATH_SEPARATOR
from echelons.workspace.changes import (
    MAX_CHANGES,
    MAX_CHANGES_BYTES,
    ChangedFile,
    Changeset,
    ChangeState,
    FileChange,
    MergeResult,
    merge_changes,
)
from echelons.workspace.files import Workspace


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A change as it is stored, see `FileChange`.

    Attributes:
        file: The file.
        at: When it was last stored, ISO 8601, UTC.
        root: The folder for which it was made.
    """

    file: str
    text: str | None
    bases: list[str | None]
    at: str
    state: ChangeState = "proposed"
    calls: list[str] | None = None
    root: str = ""


CHANGE: Final[RecordKind[StoredChange]] = RecordKind("workspace", StoredChange)
"""A change of a file that an agent has proposed."""


class LedgerChanges:
    """The changes of one agent on one thread.

    Args:
        ledger: The ledger.
        thread_id: The root's thread.
        agent: Path of the agent.
        turn: The turn of the run that changes something; `None` for none.
        root: The folder for which changes are made.
    """

    def __init__(
        self,
        ledger: Ledger,
        thread_id: str,
        agent: str,
        turn: Turn | None = None,
        root: str = "",
    ) -> None:
        self._ledger = ledger
        self._prefix = build_key(thread_id, CHANGE.name, quote(agent, safe=""), "")
        self._turn = turn
        self._root = root

    def load(self) -> Mapping[str, FileChange]:
        """Return all changes by their files, sorted."""
        found = self._ledger.query(lambda open_: [*self._list(open_)])
        changes = {each.value.file: _decode(each) for each in found}
        return dict(sorted(changes.items()))

    def find(self, file: str) -> FileChange | None:
        """Return the change of a file, `None` if there is none."""
        key = self._build_key(file)
        found = self._ledger.get_record(CHANGE, key)
        if found and found.value.file != file:
            raise LedgerDamaged(key, f"it is of {found.value.file!r}", CHANGE.name)
        return _decode(found) if found else None

    def replace(self, file: str, before: FileChange | None, after: FileChange | None) -> bool:
        """Store a change, or remove it, if it is still the one from before; return whether it was.

        Raises:
            FileTooLarge: The agent would have too many changes, or too large ones.
            LeaseLost: Another process runs the thread now.
        """
        key, expected = self._build_key(file), before.version if before else None

        def work(open_: Transaction) -> bool:
            if self._turn:
                self._turn.check_in(open_)
            if after is None:
                return expected is None or open_.delete(key, expected)
            if _measure(after) > (_measure(before) if before else -1):
                self._check_room(open_, key, file, after)
            value: dict[str, Any] = {
                "file": file,
                "text": after.text,
                "bases": [*after.bases],
                "at": open_.now,
                "state": after.state,
                "calls": [*after.calls],
                "root": self._root,
            }
            return open_.compare_and_set(key, expected, value) is not None

        return self._ledger.commit(work)

    def _check_room(self, open_: Transaction, key: str, file: str, after: FileChange) -> None:
        others = [each for each in self._list(open_) if each.value.file != file]
        if len(others) + 1 > MAX_CHANGES:
            why = "the changed files of the agent are too many; merge or discard some"
            raise FileTooLarge(file, why, len(others) + 1, MAX_CHANGES)
        size = sum(_measure(_decode(each)) for each in others) + _measure(after)
        if size > MAX_CHANGES_BYTES:
            why = "the bytes of all changes of the agent are too many; merge or discard some"
            raise FileTooLarge(file, why, size, MAX_CHANGES_BYTES)

    def _list(self, open_: Transaction) -> list[VersionedValue[StoredChange]]:
        found = (open_.get_record(CHANGE, key) for key in open_.list_keys(self._prefix))
        return [each for each in found if each]

    def _build_key(self, file: str) -> str:
        # A path may be longer than the name of a key.
        return self._prefix + sha256(file.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TreeWorkspace:
    """The workspace of a session's runs, which their file tools find in the config.

    Attributes:
        workspace: The folder.
        ledger: The ledger of the saver.
    """

    workspace: Workspace
    ledger: Ledger

    def open_changeset(self, config: Mapping[str, Any], subordinate: str = "") -> Changeset:
        """Return the files as the agent of a run sees them, or as an agent below it does."""
        given = config["configurable"]
        agent = PATH_SEPARATOR.join(require_identity(config).path)
        if subordinate:
            # Of others, whatever is named, only those below it.
            agent = f"{agent}/{subordinate.removeprefix(f'{agent}/')}"
        thread_id = str(given.get("thread_id", ""))
        grant: Grant = given.get(GRANT_KEY, ALL_GRANTED)
        return self.build_changeset(thread_id, agent, get_turn(given), grant)

    def build_changeset(
        self, thread_id: str, agent: str, turn: Turn | None = None, grant: Grant = ALL_GRANTED
    ) -> Changeset:
        """Return the files as an agent of a thread sees them."""
        store = LedgerChanges(self.ledger, thread_id, agent, turn, self.workspace.root)
        return Changeset(self.workspace, agent, store, grant)


def list_changes(
    workspace: Workspace, thread_id: str, path: str | None, known: Collection[str]
) -> ReadPlan[list[ChangedFile]]:
    """Plan: what the agents of a thread would change, those of one agent or of all.

    Args:
        workspace: The workspace.
        thread_id: The root's thread.
        path: Path of the agent; `None` for all that have changes.
        known: Paths of the tree. An agent with changes may be named, too.

    Raises:
        UnknownPath: There is no such agent.
    """

    def read(ledger: Ledger) -> list[ChangedFile]:
        agents = [path] if path is not None else find_changing_agents(ledger, thread_id)
        tree = TreeWorkspace(workspace, ledger)
        return [
            each
            for agent in agents
            for each in tree.build_changeset(thread_id, agent).list_changes()
        ]

    yield from _check_agent(thread_id, path, known)
    found: list[ChangedFile] = yield LedgerQuery(read)
    return found


def merge_agent_changes(
    workspace: Workspace, thread_id: str, path: str, known: Collection[str]
) -> ReadPlan[MergeResult]:
    """Plan: merge the changes of an agent into the folder, see `merge_changes`."""

    def merge(ledger: Ledger) -> MergeResult:
        return merge_changes(workspace, LedgerChanges(ledger, thread_id, path, root=workspace.root))

    yield from _check_agent(thread_id, path, known)
    result: MergeResult = yield LedgerQuery(merge)
    return result


def discard_changes(
    workspace: Workspace, thread_id: str, path: str, files: Sequence[str], known: Collection[str]
) -> ReadPlan[list[str]]:
    """Plan: forget the changes of an agent, all of them or those of some files; return which."""

    def discard(ledger: Ledger) -> list[str]:
        return TreeWorkspace(workspace, ledger).build_changeset(thread_id, path).discard(files)

    yield from _check_agent(thread_id, path, known)
    gone: list[str] = yield LedgerQuery(discard)
    return gone


def find_changing_agents(ledger: Ledger, thread_id: str) -> list[str]:
    """Return the paths of the agents of a thread that have changes, sorted."""
    prefix = build_key(thread_id, CHANGE.name, "")
    keys = (key.removeprefix(prefix) for key in ledger.list_keys(prefix))
    return sorted({unquote(key.partition("/")[0]) for key in keys})


def find_root(ledger: Ledger, thread_id: str) -> str:
    """Return the folder for which the first change of a thread was made; empty if there is none."""
    for key in ledger.list_keys(build_key(thread_id, CHANGE.name, ""))[:1]:
        if found := ledger.get_record(CHANGE, key):
            return found.value.root
    return ""


def _check_agent(thread_id: str, path: str | None, known: Collection[str]) -> ReadPlan[None]:
    if path is None or path in known:
        return
    agents: list[str] = yield LedgerQuery(lambda ledger: find_changing_agents(ledger, thread_id))
    if path not in agents:
        raise UnknownPath(path, sorted({*agents, *known}))


def _decode(found: VersionedValue[StoredChange]) -> FileChange:
    stored = found.value
    calls = tuple(stored.calls or ())
    return FileChange(stored.text, tuple(stored.bases), stored.state, calls, found.version)


def _measure(change: FileChange) -> int:
    return len((change.text or "").encode())
