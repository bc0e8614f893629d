"""`Changeset`: what an agent would change in a workspace, laid over its files.

The agent reads the folder with its own changes on top, and writes to them alone. Each change knows
the text that it was based on, so that a merge finds out what others have changed since. Changes
are kept in a `ChangeStore`, one for each file, so a crash loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from echelons.delegation.context import PRIVATE_FOLDER
from echelons.errors import FileRefused, file_refused, no_workspace
from echelons.features.workspace.files import Workspace, check_path, check_text, hash_text
from echelons.guards.permissions import ALL_GRANTED, Grant
from echelons.run_context import get_context

if TYPE_CHECKING:
    from echelons.features.workspace.feature import LedgerChanges, TreeWorkspace

MAX_CHANGES: Final = 1000
"""Files that an agent may change between two merges."""
MAX_CHANGES_BYTES: Final = 16 * 1024 * 1024
"""Bytes of UTF-8 that all its changes may have together."""
_KEPT_CALLS: Final = 32
"""Latest calls that a change remembers, so that none is carried out twice."""
_COMPARED_LINES: Final = 10_000
"""Lines that are compared one by one; comparing more could take minutes."""
_ATTEMPTS: Final = 100
"""How often a change is made again as another call has changed the same file meanwhile."""

ChangeState: TypeAlias = Literal["proposed", "merging", "merged"]
"""Whether a merge has begun to put a change into the folder, or has done so."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of one file.

    Attributes:
        text: The text that it is to have; `None` if it is to be removed.
        bases: The hashes of the texts whose place it may take, `None` for that there is no file:
            that of the text that it was based on, and of those that a merge may have put there.
        state: The outcome of its merge.
        calls: The latest calls that have changed it, by their idempotency keys.
        version: The key of the change, and its version there; `None` if it is not stored.
    """

    text: str | None
    bases: tuple[str | None, ...]
    state: ChangeState = "proposed"
    calls: tuple[str, ...] = ()
    version: tuple[str, int] | None = None

    @property
    def digest(self) -> str | None:
        """The hash of the text that the file is to have; `None` if it is to be removed."""
        return None if self.text is None else hash_text(self.text)


def get_changeset(config: Mapping[str, Any], subordinate: str = "") -> Changeset:
    """Return the files as the agent of a run sees them, or as an agent below it does.

    Args:
        config: The config of the run.
        subordinate: Name of a subordinate, or path of an agent below; empty for the agent itself.

    Raises:
        WorkspaceError: The run has no workspace.
    """
    workspace: TreeWorkspace | None = get_context(config).features.get("workspace")
    if workspace is None:
        raise no_workspace()
    return workspace.open_changeset(config, subordinate)


class ChangedFile(NamedTuple):
    """A change of a file, for review.

    Attributes:
        agent: Path of the agent that proposes it.
        path: The file.
        kind: `"added"`, `"changed"` or `"deleted"`.
        diff: The change as a unified diff of the folder's file.
        conflict: Why it cannot be merged; empty if it can.
        heir: Its owner if the agent was dismissed: path of its nearest superior that is there,
            or `"the user"`; empty if it was not.
    """

    agent: str
    path: str
    kind: Literal["added", "changed", "deleted"]
    diff: str
    conflict: str = ""
    heir: str = ""


class Changeset:
    """The files of a workspace as one agent sees them, and its changes.

    Args:
        workspace: The workspace.
        agent: Path of the agent, such as `"head/north"`.
        store: Keeps its changes.
        grant: The files that it may read and change, beside those of its own folder.
    """

    def __init__(
        self, workspace: Workspace, agent: str, store: LedgerChanges, grant: Grant = ALL_GRANTED
    ) -> None:
        self._grant = grant
        self._workspace = workspace
        self._agent = agent
        self._own_folder = f"{PRIVATE_FOLDER}/{agent}/"
        self._store = store

    def read(self, path: str) -> str | None:
        """Return the text of a file as the agent sees it, `None` if there is none.

        Raises:
            WorkspaceError: The path is none of a workspace; it belongs to another agent, or cannot
                be read.
        """
        path = self._check_access(path)
        change = self._store.find(path)
        if change and change.state != "merged":
            return change.text
        file = self._workspace.read(path)
        return file.text if file else None

    def write(self, path: str, text: str, call: str = "") -> None:
        """Give a file a new text, among the changes of the agent.

        Args:
            path: The file.
            text: Its text.
            call: The idempotency key of the call: the same call changes nothing twice.

        Raises:
            WorkspaceError: The path is none of a workspace; it has more than 1 MiB, or the agent
                has changed too much; it belongs to another agent, or cannot be read or written.
        """
        path = self._check_access(path)
        text = check_text(path, text)
        self._change(path, lambda _: text, call)

    def edit(self, path: str, old: str, new: str, call: str = "") -> None:
        """Replace the one occurrence of a text in a file, see `write`.

        Raises:
            WorkspaceError: There is no such file, or the text is not in it exactly once.
        """
        path = self._check_access(path)

        def change(before: str | None) -> str:
            if before is None:
                raise file_refused(path, "there is no such file")
            count = before.count(old) if old else 0
            if count != 1:
                why = f"the text to replace is in it {count} times; give one that is in it once"
                raise file_refused(path, why)
            return check_text(path, before.replace(old, new))

        self._change(path, change, call)

    def delete(self, path: str, call: str = "") -> None:
        """Remove a file, see `write`.

        Raises:
            WorkspaceError: There is no such file.
        """
        path = self._check_access(path)

        def change(before: str | None) -> None:
            if before is None:
                raise file_refused(path, "there is no such file")

        self._change(path, change, call)

    def list_files(self, under: str = "") -> list[str]:
        """Return the files that the agent sees, sorted; with a folder, those in it."""
        under = check_path(under.removesuffix("/")) if under else ""
        changes, folder = self._load(), f"{under}/" if under else ""
        files = {*self._workspace.list_files(under), *changes}
        files -= {path for path, change in changes.items() if change.text is None}
        return sorted(
            path
            for path in files
            if path.startswith(folder) and self._is_granted(path) and not self._is_foreign(path)
        )

    def list_changes(self, paths: Sequence[str] = ()) -> list[ChangedFile]:
        """Return the changes of the agent, all of them or those of some files."""
        wanted = set(map(check_path, paths))
        changes = self._load()
        files = (
            self._review(path, change)
            for path, change in changes.items()
            if not wanted or path in wanted
        )
        # Not those that were taken back, or are in the folder already.
        return [file for file in files if file.diff or file.conflict]

    def merge(self) -> MergeResult:
        """Put the changes into the folder, see `merge_changes`."""
        return merge_changes(self._workspace, self._store)

    def discard(self, paths: Sequence[str] = ()) -> list[str]:
        """Forget the changes of the agent, all of them or those of some files; return which."""
        wanted, gone = set(map(check_path, paths)), []
        for path in self._load():
            while (not wanted or path in wanted) and (change := self._store.find(path)):
                if self._store.replace(path, change, None):
                    gone.append(path)
        return gone

    def _load(self) -> dict[str, FileChange]:
        return {
            path: change for path, change in self._store.load().items() if change.state != "merged"
        }

    def _change(self, path: str, change: Callable[[str | None], str | None], call: str) -> None:
        for _ in range(_ATTEMPTS):
            before = self._store.find(path)
            if before and call and call in before.calls:
                return
            if before and before.state != "merged":
                text, bases = before.text, before.bases
            else:
                file = self._workspace.read(path)
                text, bases = (file.text, (file.digest,)) if file else (None, (None,))
            after = change(text)
            calls = (*(before.calls if before else ()), *filter(None, (call,)))[-_KEPT_CALLS:]
            if self._store.replace(path, before, FileChange(after, bases, calls=calls)):
                return
        raise file_refused(path, "other calls change it all the time; try again")

    def _review(self, path: str, change: FileChange) -> ChangedFile:
        conflict, text = "", None
        try:
            file = self._workspace.read(path)
            text = file.text if file else None
            if (file.digest if file else None) not in (*change.bases, change.digest):
                conflict = CONFLICT
        except FileRefused as error:
            conflict = error.why
        kind: Literal["added", "changed", "deleted"] = "changed"
        if change.text is None or None in change.bases[:1]:
            kind = "deleted" if change.text is None else "added"
        diff = format_diff(path, text, change.text)
        return ChangedFile(self._agent, path, kind, diff, conflict)

    def _check_access(self, path: str) -> str:
        path = check_path(path)
        if self._is_foreign(path):
            why = f"it belongs to other agents; files of your own go into {self._own_folder!r}"
            raise file_refused(path, why)
        if not self._is_granted(path):
            named = ", ".join(map(repr, self._grant.paths or ())) or "none"
            raise file_refused(path, f"it is not granted to you; granted are: {named}")
        return path

    def _is_granted(self, path: str) -> bool:
        return path.startswith(self._own_folder) or self._grant.allows_path(path)

    def _is_foreign(self, path: str) -> bool:
        """Return whether a file is in a private folder, but not in the agent's own."""
        # Some file systems take it for the same in capitals.
        is_private = path.partition("/")[0].casefold() == PRIVATE_FOLDER
        return is_private and not path.startswith(self._own_folder)


CONFLICT: Final = "the file has been changed since; discard the change, or merge it by hand"
"""Why a change is not merged."""


def merge_changes(workspace: Workspace, store: LedgerChanges) -> MergeResult:
    """Put the changes of an agent into the folder, file by file; those in conflict are left.

    Each step is stored before the next, so a merge that was killed at any point goes on when it is
    called again: what is in the folder already is not written twice.

    Raises:
        WorkspaceError: The folder is gone.
    """
    left: list[tuple[str, str]] = []
    with workspace.lock():
        for path in store.load():
            if why := _merge_file(workspace, store, path):
                left.append((path, why))
        merged = []
        for path, change in store.load().items():
            if change.state == "merged":
                merged.append(path)
                store.replace(path, change, None)
    return MergeResult(tuple(merged), tuple(left))


class MergeResult(NamedTuple):
    """The outcome of a merge.

    Attributes:
        merged: The files that were changed.
        left: The files whose changes are left for review, each with the reason.
    """

    merged: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


def _merge_file(workspace: Workspace, store: LedgerChanges, path: str) -> str:
    """Merge the change of a file; return why it is left, empty if it is merged."""
    while (change := store.find(path)) and change.state != "merged":
        if change.state == "proposed":
            # First of all it is stored what the folder may have from now on.
            bases = tuple(dict.fromkeys((*change.bases, change.digest)))
            store.replace(path, change, replace(change, state="merging", bases=bases))
            continue
        try:
            workspace.remove_leftovers(path)
            text = workspace.read(path)
            digest = text.digest if text else None
            if digest not in change.bases:
                why = CONFLICT
            else:
                why = ""
                if digest != change.digest:
                    workspace.write(path, change.text, digest)
        except FileRefused as error:
            why = error.why
        if why:
            store.replace(path, change, replace(change, state="proposed"))
            return why
        if store.replace(path, change, replace(change, state="merged", bases=(change.digest,))):
            return ""
        # The agent has changed it again: that is based on what is in the folder now.
    return ""


def format_diff(path: str, before: str | None, after: str | None) -> str:
    r"""Return the unified diff of a file, as `git apply` reads it; empty if nothing differs.

    Args:
        path: The file.
        before: Its text; `None` if there is no such file.
        after: Its new text, likewise.

    Examples:
        >>> print(format_diff("plan.md", "Rome\n", "Turin\n"), end="")
        diff --git a/plan.md b/plan.md
        --- a/plan.md
        +++ b/plan.md
        @@ -1 +1 @@
        -Rome
        +Turin
    """
    if before == after:
        return ""
    head = [f"diff --git a/{path} b/{path}\n"]
    if before is None:
        head.append("new file mode 100644\n")
    if after is None:
        head.append("deleted file mode 100644\n")
    old, new = ([*StringIO(text or "", newline="\n")] for text in (before, after))
    # A tab ends a name that has spaces.
    end = "\t" if " " in path else ""
    names = (
        "/dev/null" if before is None else f"a/{path}{end}",
        "/dev/null" if after is None else f"b/{path}{end}",
    )
    if len(old) + len(new) <= _COMPARED_LINES:
        lines = [*unified_diff(old, new, *names)]
    else:
        ranges = f"@@ -{_format_range(old)} +{_format_range(new)} @@\n"
        removed, added = (f"-{line}" for line in old), (f"+{line}" for line in new)
        lines = [f"--- {names[0]}\n", f"+++ {names[1]}\n", ranges, *removed, *added]
    marked = (
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    return "".join((*head, *marked))


def _format_range(lines: Sequence[str]) -> str:
    return f"{1 if lines else 0},{len(lines)}"
