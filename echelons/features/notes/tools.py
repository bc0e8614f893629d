"""`note_tools`: the tools with which agents that have one superior share notes."""

from __future__ import annotations

from langchain_core.tools import BaseTool

from echelons.effects.journal import effect
from echelons.errors import note_refused
from echelons.features.notes.store import get_notes
from echelons.features.workspace.tools import (
    build_tool,
    cut_text,
    find_config,
    get_call,
    refuse_to_model,
)


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
