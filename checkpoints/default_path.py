"""The default path of the database, for the command line and for LangGraph's server."""

from __future__ import annotations

from pathlib import Path

from echelons.errors import StorageError

DATABASE_VARIABLE = "ECHELONS_DB"
"""The environment variable that overrides the default path."""


def get_default_database() -> Path:
    """Return the path of the database in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("echelons", appauthor=False) / "echelons.sqlite"


def expand_home(path: Path) -> Path:
    """Return a path with the home folder for its `~`; one of an unknown user stays as it is."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def make_database_folder(path: Path) -> None:
    """Create the folder of the default database with mode 0700.

    Raises:
        StorageError: It cannot be created.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(str(path), str(error)) from error
