"""Notes that agents share: their tools, and the ledger in which they are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Final, NamedTuple

from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.coordination.records import (
    Records,
    Versions,
    get_root_checkpoint,
    read_branch,
)
from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.ledger import Transaction, get_ledger
from echelons.checkpoints.queries import run_plan
from echelons.delegation.effects import effect
from echelons.errors import note_refused
from echelons.features.feature import Feature
from echelons.features.workspace.tools import (
    build_tool,
    cut_text,
    find_config,
    get_call,
    refuse_to_model,
)
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


class NotesFeature(Feature):
    """Notes that agents with one superior share."""

    name: ClassVar[str] = "notes"
    records: ClassVar[Sequence[Records[Any]]] = (NOTE,)

    def provide(self, saver: BaseCheckpointSaver[Any], option: Any) -> LedgerNotes:
        """Return the notes of a session's runs."""
        return LedgerNotes(saver)


FEATURE = NotesFeature()


def note_tools() -> list[BaseTool]:
    """Return the tools with which an agent shares notes with the agents of its superior.

    Notes are kept with the root's thread, in every session; they need no workspace.

    Examples:
        >>> [each.name for each in note_tools()]
        ['note_write', 'note_read', 'note_list']
    """
    return [
        # Each call is remembered with the note, so one that is repeated changes nothing twice.
        effect(idempotent=True)(build_tool(_note_write)),
        effect(reads_only=True)(build_tool(_note_read)),
        effect(reads_only=True)(build_tool(_note_list)),
    ]


def _note_write(name: str, text: str) -> str:
    """Write a note for the agents that work beside you, in the place of one of the same name.

    Args:
        name: Its name, such as "hotels in Rome".
        text: Its content.
    """
    with refuse_to_model():
        config = find_config()
        get_notes(config).write(name, text, get_call(), config)
    return f"wrote note {name!r}"


def _note_read(name: str) -> str:
    """Read a note of yours, or of the agents that work beside you.

    Args:
        name: Its name.
    """
    with refuse_to_model():
        config = find_config()
        note = get_notes(config).read(name, config)
        if note is None:
            raise note_refused(repr(name), "there is none of that name; note_list shows them")
    return f"[{note.author}, {note.at}]\n{note.text}"


def _note_list() -> str:
    """List the notes of yours, and of the agents that work beside you."""
    with refuse_to_model():
        config = find_config()
        notes = get_notes(config).list(config)
    lines = (f"{note.name} [{note.author}, {note.at}]" for note in notes)
    return cut_text("\n".join(lines)) or "no notes"
