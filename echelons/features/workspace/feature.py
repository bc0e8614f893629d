"""`WorkspaceFeature`: the records of changes that agents propose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.coordination.records import Records
from echelons.features.feature import Feature
from echelons.features.workspace.files import Workspace
from echelons.features.workspace.store import CHANGE, TreeWorkspace


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
