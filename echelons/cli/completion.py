"""Shell completion of teams and threads.

Never fails and never creates a database: the user is in the middle of typing.
"""

from __future__ import annotations

import typer

from echelons.errors import EchelonsError


def complete_team(incomplete: str) -> list[str]:
    """Return the shipped teams that start with the text."""
    from echelons.cli.team_loader import list_shipped_teams

    return [name for name in list_shipped_teams() if name.startswith(incomplete)]


def complete_thread(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the threads of the database whose label starts with the text, latest first."""
    from echelons.cli.database import list_roots, open_database

    try:
        with open_database(ctx.params.get("db")) as saver:
            names = [root.name or root.id for root in list_roots(saver)]
    except EchelonsError:
        return []
    return [name for name in names if name.startswith(incomplete)]
