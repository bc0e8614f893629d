"""Notes that the agents with one superior share: their limits, and the protocol of their store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from echelons.errors import note_refused
from echelons.run_context import get_context
from echelons.text.input_limits import read_text, shorten_repr

MAX_NOTES: Final = 200
"""Notes that the agents with one superior may have together."""
MAX_NOTE_BYTES: Final = 64 * 1024
"""Bytes of UTF-8 that a note may have."""
MAX_NAME: Final = 128
"""Characters of the name of a note."""


class Note(NamedTuple):
    """A note.

    Attributes:
        name: Its name.
        text: What it says.
        author: Path of the agent that wrote it last.
        at: When, ISO 8601, UTC.
    """

    name: str
    text: str
    author: str
    at: str


class SharedNotes(Protocol):
    """The notes of a run; each agent sees those of the agents with its superior."""

    def write(self, name: str, text: str, call: str, config: Mapping[str, Any]) -> None:
        """Write a note, in the place of one of the same name; once for a call.

        Raises:
            WorkspaceError: It is too large, or there are too many.
        """
        ...

    def read(self, name: str, config: Mapping[str, Any]) -> Note | None:
        """Return a note, `None` if there is none of that name."""
        ...

    def list(self, config: Mapping[str, Any]) -> list[Note]:
        """Return all notes, sorted by their names."""
        ...


def check_note_name(given: object) -> str:
    """Return the name of a note.

    Raises:
        WorkspaceError: It is empty, too long, or cannot be printed.

    Examples:
        >>> check_note_name("hotels in Rome")
        'hotels in Rome'
    """
    name = read_text(given) or ""
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name.strip() != name:
        why = f"a name has 1 to {MAX_NAME} characters that can be printed, no spaces at its ends"
        raise note_refused(shorten_repr(given), why)
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


def get_notes(config: Mapping[str, Any]) -> SharedNotes:
    """Return the notes of a run.

    Raises:
        WorkspaceError: It is no run of a session.
    """
    notes = get_context(config).notes
    if notes is None:
        raise note_refused("of any name", "only runs of a Session have notes")
    return notes
