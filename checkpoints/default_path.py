"""The user's data folder: the default database, and which teams the user has run with which."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from echelons.errors import StorageError

DATABASE_VARIABLE = "ECHELONS_DB"
"""The environment variable that overrides the default path."""


def get_default_database() -> Path:
    """Return the path of the database in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("echelons", appauthor=False) / "echelons.sqlite"


def record_run(team: str, database: Path) -> None:
    """Record that this user runs a team with a database, so that it may be imported again."""
    # Where nothing can be recorded, commands want the team's name again.
    with suppress(OSError):
        record = _locate_run(team, database)
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.touch(mode=0o600)


def was_run(team: str, database: Path) -> bool:
    """Return whether this user has run a team with a database: with this very file."""
    try:
        return _locate_run(team, database).exists()
    except OSError:
        return False


def _locate_run(team: str, database: Path) -> Path:
    place, stat = database.resolve(), database.stat()
    name = f"{place}\n{stat.st_dev}\n{stat.st_ino}\n{team}"
    digest = sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return get_default_database().parent / "teams" / digest[:32]


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
