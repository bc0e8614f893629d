"""`WorkspaceFeature`: the records of changes that agents propose, kept in the ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, ClassVar, Final

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.coordination.dismissal_ledger import read_dismissals
from echelons.checkpoints.coordination.orders import is_under
from echelons.checkpoints.coordination.records import (
    START_BRANCH,
    Branch,
    Record,
    Records,
    Versions,
    get_root_checkpoint,
    read_branch,
    read_latest_branch,
)
from echelons.checkpoints.coordination.turns import Turn, get_turn
from echelons.checkpoints.ledger import Ledger, Transaction, get_ledger
from echelons.checkpoints.queries import LedgerQuery, ReadPlan, run_plan
from echelons.checkpoints.threads.dismissal import DismissedSubtree
from echelons.delegation.mail import USER
from echelons.errors import LedgerDamaged, UnknownPath, file_too_large
from echelons.features.feature import Feature
from echelons.features.workspace.changes import (
    MAX_CHANGES,
    MAX_CHANGES_BYTES,
    ChangedFile,
    Changeset,
    ChangeState,
    FileChange,
    MergeResult,
    merge_changes,
)
from echelons.features.workspace.files import Workspace
from echelons.guards.permissions import ALL_GRANTED
from echelons.identity.lineage import require_identity
from echelons.run_context import get_context
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A change as it is stored, see `FileChange`.

    Attributes:
        file: The file.
        at: When it was last stored, ISO 8601, UTC.
        root: The folder for which it was made.
        removed: Whether there is no change any more, on a branch that has seen one.
    """

    file: str
    text: str | None
    bases: list[str | None]
    at: str
    state: ChangeState = "proposed"
    calls: list[str] | None = None
    root: str = ""
    removed: bool = False


CHANGE: Final = Records[StoredChange]("workspace", StoredChange, "key", omit=("removed",))
"""A change of a file, by the path of the agent that has proposed it, and the hash of the file."""


class LedgerChanges:
    """The changes of one agent on one thread.

    Args:
        ledger: The ledger.
        thread_id: The root's thread.
        agent: Path of the agent.
        branch: The branch of the thread.
        turn: The turn of the run that changes something; `None` for none.
        root: The folder for which changes are made.
    """

    def __init__(
        self,
        ledger: Ledger,
        thread_id: str,
        agent: str,
        branch: Branch = START_BRANCH,
        turn: Turn | None = None,
        root: str = "",
    ) -> None:
        self._ledger = ledger
        self._records = Versions(CHANGE, branch, thread_id, agent)
        self._turn = turn
        self._root = root

    def load(self) -> Mapping[str, FileChange]:
        """Return all changes by their files, sorted."""
        changes = self._ledger.query(self._list)
        return dict(sorted((record.value.file, _decode(record)) for record in changes))

    def find(self, file: str) -> FileChange | None:
        """Return the change of a file, `None` if there is none."""
        record = self._ledger.query(lambda open_: self._records.find(open_, _hash_name(file)))
        if record and record.value.file != file:
            raise LedgerDamaged(record.key, f"it is of {record.value.file!r}", CHANGE.name)
        return _decode(record) if record and not record.value.removed else None

    def replace(self, file: str, before: FileChange | None, after: FileChange | None) -> bool:
        """Store a change, or remove it, if it is still the one from before; return whether it was.

        Raises:
            WorkspaceError: The agent would have too many changes, or too large ones.
            LeaseLost: Another process runs the thread now.
        """
        name, expected = _hash_name(file), before.version if before else None

        def work(open_: Transaction) -> bool:
            if self._turn:
                self._turn.check_in(open_)
            record = self._records.find(open_, name)
            if expected != (_get_version(record) if record and not record.value.removed else None):
                return False
            if record and after is None:
                removed = replace(record.value, text=None, at=open_.now, removed=True)
                return self._records.remove(open_, record, removed, name)
            if after is None:
                return True
            if _measure(after) > (_measure(before) if before else -1):
                self._check_room(open_, file, after)
            change = StoredChange(
                file,
                after.text,
                [*after.bases],
                open_.now,
                after.state,
                [*after.calls],
                self._root,
            )
            return self._records.replace(open_, record, change, name)

        return self._ledger.commit(work)

    def _check_room(self, open_: Transaction, file: str, after: FileChange) -> None:
        others = [record for record in self._list(open_) if record.value.file != file]
        if len(others) + 1 > MAX_CHANGES:
            why = "the changed files of the agent are too many; merge or discard some"
            raise file_too_large(file, why, len(others) + 1, MAX_CHANGES)
        size = sum(_measure(_decode(record)) for record in others) + _measure(after)
        if size > MAX_CHANGES_BYTES:
            why = "the bytes of all changes of the agent are too many; merge or discard some"
            raise file_too_large(file, why, size, MAX_CHANGES_BYTES)

    def _list(self, open_: Transaction) -> list[Record[StoredChange]]:
        records = self._records.list(open_).values()
        return [record for record in records if not record.value.removed]


@dataclass(frozen=True, slots=True)
class TreeWorkspace:
    """The workspace of a session's runs, which their file tools find in the config.

    Attributes:
        workspace: The folder.
        saver: The saver of the runs.
    """

    workspace: Workspace
    saver: BaseCheckpointSaver[Any]

    def open_changeset(self, config: Mapping[str, Any], subordinate: str = "") -> Changeset:
        """Return the files as the agent of a run sees them, or as an agent below it does."""
        configurable = config["configurable"]
        agent = PATH_SEPARATOR.join(require_identity(config).path)
        if subordinate:
            # Of others, whatever is named, only those below it.
            agent = f"{agent}/{subordinate.removeprefix(f'{agent}/')}"
        thread_id = str(configurable.get("thread_id", ""))
        grant = get_context(config).rights or ALL_GRANTED
        branch = run_plan(self.saver, read_branch(thread_id, get_root_checkpoint(configurable)))
        ledger, root = get_ledger(self.saver), self.workspace.root
        store = LedgerChanges(ledger, thread_id, agent, branch, get_turn(configurable), root)
        return Changeset(self.workspace, agent, store, grant)


def list_changes(
    workspace: Workspace, thread_id: str, path: str | None, declared: Collection[str]
) -> ReadPlan[list[ChangedFile]]:
    """Plan: what the agents of a thread would change, those of one agent or of all.

    An agent also has the changes that those below it have left who were dismissed.

    Args:
        workspace: The workspace.
        thread_id: The root's thread.
        path: Path of the agent; `None` for all that have changes.
        declared: Paths of the tree. An agent with changes may be named, too.

    Raises:
        UnknownPath: There is no such agent.
    """
    agents = yield from find_changing_agents(thread_id)
    dismissals = yield from read_dismissals(thread_id)
    left = {agent: dismissals.find_heir(agent) for agent in agents}
    heirs = {agent: heir or USER for agent, heir in left.items() if heir is not None}
    if path is not None:
        _check_agent(path, agents, declared)
        agents = [agent for agent in agents if path in (agent, heirs.get(agent))]
    branch = yield from read_latest_branch(thread_id)

    def read(ledger: Ledger) -> list[ChangedFile]:
        stores = {agent: LedgerChanges(ledger, thread_id, agent, branch) for agent in agents}
        return [
            change._replace(heir=heirs.get(agent, ""))
            for agent, store in stores.items()
            for change in Changeset(workspace, agent, store).list_changes()
        ]

    files: list[ChangedFile] = yield LedgerQuery(read)
    return files


def merge_agent_changes(
    workspace: Workspace, thread_id: str, path: str, paths: Collection[str]
) -> ReadPlan[MergeResult]:
    """Plan: merge the changes of an agent into the folder, see `merge_changes`."""
    _check_agent(path, (yield from find_changing_agents(thread_id)), paths)
    branch = yield from read_latest_branch(thread_id)

    def merge(ledger: Ledger) -> MergeResult:
        store = LedgerChanges(ledger, thread_id, path, branch, root=workspace.root)
        return merge_changes(workspace, store)

    result: MergeResult = yield LedgerQuery(merge)
    return result


def discard_changes(
    workspace: Workspace, thread_id: str, path: str, files: Sequence[str], paths: Collection[str]
) -> ReadPlan[list[str]]:
    """Plan: forget the changes of an agent, all of them or those of some files; return which."""
    _check_agent(path, (yield from find_changing_agents(thread_id)), paths)
    branch = yield from read_latest_branch(thread_id)

    def discard(ledger: Ledger) -> list[str]:
        store = LedgerChanges(ledger, thread_id, path, branch, root=workspace.root)
        return Changeset(workspace, path, store).discard(files)

    gone: list[str] = yield LedgerQuery(discard)
    return gone


def add_changes(thread_id: str, dismissed: DismissedSubtree) -> ReadPlan[DismissedSubtree]:
    """Plan: a dismissal with the paths of its agents that have changes, which stay."""
    agents = yield from find_changing_agents(thread_id)
    path = dismissed.dismissal.path
    return replace(dismissed, changes=tuple(agent for agent in agents if is_under(agent, path)))


def find_changing_agents(thread_id: str) -> ReadPlan[list[str]]:
    """Plan: the paths of the agents of a thread that have changes, sorted."""
    branch = yield from read_latest_branch(thread_id)
    changes = Versions(CHANGE, branch, thread_id)
    records: dict[str, Record[StoredChange]] = yield LedgerQuery(
        lambda ledger: ledger.query(changes.list)
    )
    present = (record.key for record in records.values() if not record.value.removed)
    return sorted({CHANGE.split(key)[1] for key in present})


def find_root(ledger: Ledger, thread_id: str) -> str:
    """Return the folder for which the first change of a thread was made; empty if there is none."""
    for key in ledger.list_keys(CHANGE.key(thread_id, ""))[:1]:
        if first := ledger.get_record(CHANGE, key):
            return first.value.root
    return ""


def _check_agent(path: str, changing: Collection[str], paths: Collection[str]) -> None:
    if path not in paths and path not in changing:
        raise UnknownPath(path, sorted({*changing, *paths}))


def _hash_name(file: str) -> str:
    """Return the name of a file's records: its path may be longer than a key may be."""
    return sha256(file.encode()).hexdigest()


def _decode(record: Record[StoredChange]) -> FileChange:
    stored, calls = record.value, tuple(record.value.calls or ())
    version = _get_version(record)
    return FileChange(stored.text, tuple(stored.bases), stored.state, calls, version)


def _get_version(record: Record[StoredChange]) -> tuple[str, int]:
    return record.key, record.version


def _measure(change: FileChange) -> int:
    return len((change.text or "").encode())


class WorkspaceFeature(Feature):
    """Files that agents read, and to which they propose changes."""

    name: ClassVar[str] = "workspace"
    records: ClassVar[Sequence[Records[Any]]] = (CHANGE,)

    def provide(
        self, saver: BaseCheckpointSaver[Any], option: Workspace | None
    ) -> TreeWorkspace | None:
        """Return the workspace of a session's runs, if it was passed a folder."""
        return TreeWorkspace(option, saver) if option else None


FEATURE = WorkspaceFeature()
