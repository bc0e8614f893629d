"""`LedgerNotes`: the notes that agents with one superior share, kept in the ledger.

Each note has a record under the root's thread, so it is copied and deleted with the thread. Notes
have no branches: a run that goes back to an earlier checkpoint finds them as they are now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.ledger import Ledger, RecordKind, Transaction, build_key
from echelons.errors import NoteRefused
from echelons.identity.lineage import require_identity
from echelons.tree.names import PATH_SEPARATOR
from echelons.workspace.notes import MAX_NOTES, Note, check_note_name, check_note_text

_KEPT_CALLS: Final = 32
"""Latest calls that a note remembers, so that none is carried out twice."""


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A note as it is stored, see `Note`.

    Attributes:
        calls: The latest calls that have written it, by their idempotency keys.
    """

    name: str
    text: str
    author: str
    at: str
    calls: list[str]


NOTE: Final[RecordKind[StoredNote]] = RecordKind("note", StoredNote)
"""A note of the agents with one superior."""


@dataclass(frozen=True, slots=True)
class LedgerNotes:
    """The notes of a session's runs.

    Attributes:
        ledger: The ledger of the saver.
    """

    ledger: Ledger

    def write(self, name: str, text: str, call: str, config: Mapping[str, Any]) -> None:
        """Write a note, in the place of one of the same name; once for a call.

        Raises:
            NoteRefused: It is too large, or there are too many.
            LeaseLost: Another process runs the thread now.
        """
        name = check_note_name(name)
        text = check_note_text(name, text)
        prefix, turn = _build_prefix(config), get_turn(config["configurable"])
        author = PATH_SEPARATOR.join(require_identity(config).path)
        key = _build_key(prefix, name)

        def work(open_: Transaction) -> None:
            if turn:
                turn.check_in(open_)
            found = open_.get_record(NOTE, key)
            calls = found.value.calls if found else []
            if call and call in calls:
                return
            if found is None and len(open_.list_keys(prefix)) >= MAX_NOTES:
                why = f"there are {MAX_NOTES} notes, which is the limit; write into one of them"
                raise NoteRefused(repr(name), why)
            value: dict[str, Any] = {
                "name": name,
                "text": text,
                "author": author,
                "at": open_.now,
                "calls": [*calls, call][-_KEPT_CALLS:] if call else calls,
            }
            open_.compare_and_set(key, found.version if found else None, value)

        self.ledger.commit(work)

    def read(self, name: str, config: Mapping[str, Any]) -> Note | None:
        """Return a note, `None` if there is none of that name."""
        key = _build_key(_build_prefix(config), check_note_name(name))
        found = self.ledger.get_record(NOTE, key)
        return _decode(found.value) if found else None

    def list(self, config: Mapping[str, Any]) -> list[Note]:
        """Return all notes, sorted by their names."""
        prefix = _build_prefix(config)

        def work(open_: Transaction) -> list[Note]:
            found = (open_.get_record(NOTE, key) for key in open_.list_keys(prefix))
            return sorted(_decode(each.value) for each in found if each)

        return self.ledger.query(work)


def _build_prefix(config: Mapping[str, Any]) -> str:
    """Return how the keys of the notes begin that the agent of a run shares."""
    superior = PATH_SEPARATOR.join(require_identity(config).path[:-1])
    thread_id = str(config["configurable"].get("thread_id", ""))
    return build_key(thread_id, NOTE.name, quote(superior, safe=""), "")


def _build_key(prefix: str, name: str) -> str:
    return prefix + sha256(name.encode()).hexdigest()


def _decode(stored: StoredNote) -> Note:
    return Note(stored.name, stored.text, stored.author, stored.at)
