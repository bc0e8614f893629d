"""The team of a stored thread: what the thread recorded, unless options replace it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from echelons.cli.database import root_label
from echelons.cli.options import StoredTeamOptions
from echelons.cli.team_loader import TeamSpec
from echelons.errors import TeamNotRecorded

if TYPE_CHECKING:
    from echelons.checkpoints.threads.store import RootThread


def resolve_stored_team(root: RootThread, options: StoredTeamOptions) -> TeamSpec:
    """Return the team of a stored thread, with what the options replace.

    Raises:
        TeamNotRecorded: Neither the thread nor the command line names a team.
    """
    name = TeamSpec.from_metadata(root.metadata)
    if options.team is not None:
        same = name is not None and name.team == options.team
        name = replace(name, trusted=True) if name and same else TeamSpec(options.team)
    if name is None:
        raise TeamNotRecorded(root_label(root))
    if options.docs is not None:
        name = replace(name, docs=options.docs.expanduser().absolute())
    return name if options.model is None else replace(name, model=options.model)
