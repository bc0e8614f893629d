"""`WorkspaceFeature`: the records of changes that agents propose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from echelons.checkpoints.coordination.records import Records
from echelons.features.feature import Feature
from echelons.features.workspace.store import CHANGE


class WorkspaceFeature(Feature):
    """Files that agents read, and to which they propose changes."""

    name: ClassVar[str] = "workspace"
    records: ClassVar[Sequence[Records[Any]]] = (CHANGE,)


FEATURE = WorkspaceFeature()
