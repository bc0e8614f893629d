"""`NotesFeature`: the records of notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.coordination.records import Records
from echelons.features.feature import Feature
from echelons.features.notes.store import NOTE, LedgerNotes


class NotesFeature(Feature):
    """Notes that agents with one superior share."""

    name: ClassVar[str] = "notes"
    records: ClassVar[Sequence[Records[Any]]] = (NOTE,)

    def provide(self, saver: BaseCheckpointSaver[Any], option: Any) -> LedgerNotes:
        """Return the notes of a session's runs."""
        return LedgerNotes(saver)


FEATURE = NotesFeature()
