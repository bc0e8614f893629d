"""Where the database is that nobody names, for the command line and for LangGraph's server."""

from __future__ import annotations

from pathlib import Path

from echelons.errors import StorageError

VARIABLE = "ECHELONS_DB"
"""The environment variable that names another one."""


def default_database() -> Path:
    """Return the database in the user's data folder, where the system keeps such things."""
    from platformdirs import user_data_path

    return user_data_path("echelons", appauthor=False) / "echelons.sqlite"


def make_folder(database: Path) -> None:
    """Make the folder of the default database, which only its user can enter.

    Raises:
        StorageError: It cannot be made.
    """
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(str(database), str(error)) from error
