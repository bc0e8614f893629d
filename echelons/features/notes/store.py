"""`LedgerNotes`: the notes that agents with one superior share, kept in the ledger.

Each note has a record under the root's thread, so it is copied and deleted with the thread. A run
that goes back to an earlier checkpoint finds the notes that there were then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.coordination.branches import get_root_checkpoint, read_branch
from echelons.checkpoints.coordination.records import Records, Versions
from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.ledger import Transaction, get_ledger
from echelons.checkpoints.queries import run_plan
from echelons.errors import note_refused
from echelons.identity.lineage import require_identity
from echelons.run_context import get_context
from echelons.text.input_limits import read_text, shorten_repr
from echelons.tree.names import PATH_SEPARATOR

MAX_NOTES: Final = 200
"""Notes that the agents with one superior may have together."""
MAX_NOTE_BYTES: Final = 64 * 1024
"""Bytes of UTF-8 that a note may have."""
MAX_NAME: Final = 128
"""Characters of the name of a note."""
_KEPT_CALLS: Final = 32
"""Latest calls that a note remembers, so that none is carried out twice."""


class Note(NamedTuple):
    """A note."""

    name: str
    text: str
    # Path of the agent that wrote it last.
    author: str
    # ISO 8601, UTC.
    at: str


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A note as it is stored, see `Note`."""

    name: str
    text: str
    author: str
    at: str
    # The idempotency keys of the latest calls that have written it.
    calls: list[str]


NOTE: Final = Records[StoredNote]("note", StoredNote, "key")
"""A note, by the path of the superior of the agents that share it, and the hash of its name."""


@dataclass(frozen=True, slots=True)
class LedgerNotes:
    """The notes of a session's runs."""

    saver: BaseCheckpointSaver[Any]

    def write(self, name: str, text: str, call: str, config: Mapping[str, Any]) -> None:
        """Write a note, in the place of one of the same name; once for a call.

        Raises:
            WorkspaceError: It is too large, or there are too many.
            LeaseLost: Another process runs the thread now.
        """
        name = check_note_name(name)
        text = check_note_text(name, text)
        notes, turn = self._open_notes(config), get_turn(config["configurable"])
        author = PATH_SEPARATOR.join(require_identity(config).path)
        key = _hash_name(name)

        def work(open_: Transaction) -> None:
            if turn:
                turn.check_in(open_)
            before = notes.find(open_, key)
            calls = before.value.calls if before else []
            if call and call in calls:
                return
            if before is None and len(notes.list(open_)) >= MAX_NOTES:
                why = f"there are {MAX_NOTES} notes, which is the limit; write into one of them"
                raise note_refused(repr(name), why)
            calls = [*calls, call][-_KEPT_CALLS:] if call else calls
            notes.replace(open_, before, StoredNote(name, text, author, open_.now, calls), key)

        get_ledger(self.saver).commit(work)

    def read(self, name: str, config: Mapping[str, Any]) -> Note | None:
        """Return a note, `None` if there is none of that name."""
        notes, key = self._open_notes(config), _hash_name(check_note_name(name))
        note = get_ledger(self.saver).query(lambda open_: notes.find(open_, key))
        return _decode(note.value) if note else None

    def list(self, config: Mapping[str, Any]) -> list[Note]:
        """Return all notes, sorted by their names."""
        notes = get_ledger(self.saver).query(self._open_notes(config).list)
        return sorted(_decode(note.value) for note in notes.values())

    def _open_notes(self, config: Mapping[str, Any]) -> Versions[StoredNote]:
        """Return the records of the notes that the agent of a run shares."""
        superior = PATH_SEPARATOR.join(require_identity(config).path[:-1])
        thread_id = str(config["configurable"].get("thread_id", ""))
        current = get_root_checkpoint(config["configurable"])
        branch = run_plan(self.saver, read_branch(thread_id, current))
        return Versions(NOTE, branch, thread_id, superior)


def get_notes(config: Mapping[str, Any]) -> LedgerNotes:
    """Return the notes of a run.

    Raises:
        WorkspaceError: It is no run of a session.
    """
    notes: LedgerNotes | None = get_context(config).features.get("notes")
    if notes is None:
        raise note_refused("of any name", "only runs of a Session have notes")
    return notes


def check_note_name(value: object) -> str:
    """Return the name of a note.

    Raises:
        WorkspaceError: It is empty, too long, or cannot be printed.

    Examples:
        >>> check_note_name("hotels in Rome")
        'hotels in Rome'
    """
    name = read_text(value) or ""
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name.strip() != name:
        why = f"a name has 1 to {MAX_NAME} characters that can be printed, no spaces at its ends"
        raise note_refused(shorten_repr(value), why)
    return name


def check_note_text(name: str, text: str) -> str:
    """Return the text of a note.

    Raises:
        WorkspaceError: It has more than 64 KiB, or is no UTF-8.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise note_refused(repr(name), "its text holds half a character") from error
    if size > MAX_NOTE_BYTES:
        why = f"its text has {size} bytes, and the limit is {MAX_NOTE_BYTES}; write less"
        raise note_refused(repr(name), why)
    return text


def _hash_name(name: str) -> str:
    """Return the name of a note's records: its own may be longer than a key may be."""
    return sha256(name.encode()).hexdigest()


def _decode(stored: StoredNote) -> Note:
    return Note(stored.name, stored.text, stored.author, stored.at)
