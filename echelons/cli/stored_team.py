"""The team of a stored thread: what the thread recorded, unless options replace it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from echelons.cli.database import label
from echelons.cli.options import Remaking
from echelons.cli.team_loader import TeamName
from echelons.errors import TeamNotRecorded

if TYPE_CHECKING:
    from echelons.checkpoints.threads.store import RootThread


def remade(root: RootThread, given: Remaking) -> TeamName:
    """Return the team of a stored thread, with what the options replace.

    Raises:
        TeamNotRecorded: Neither the thread nor the command line names a team.
    """
    name = TeamName.read(root.metadata)
    if given.team is not None:
        same = name is not None and name.team == given.team
        name = replace(name, trusted=True) if name and same else TeamName(given.team)
    if name is None:
        raise TeamNotRecorded(label(root))
    if given.docs is not None:
        name = replace(name, docs=given.docs.expanduser().absolute())
    return name if given.model is None else replace(name, model=given.model)
