"""Errors of stored data: changed, sealed, or not readable.

Raised where rows are sealed and read, and where values are serialised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from echelons.errors.base import EchelonsError
from echelons.errors.configuration import ConfigurationError


class CheckpointTampered(EchelonsError):
    """A stored row is damaged, was moved, or was not written by Echelons.

    Attributes:
        where: The row.
        why: What is wrong with it.
    """

    where: str
    why: str
    message = (
        "{where} is not what was stored: {why}. Nothing of it was used, and other threads can be "
        "read. Restore a backup of the database, or delete the thread"
    )


class UnknownSealKey(CheckpointTampered):
    """A row was sealed with a key that was not given.

    Attributes:
        where: The row.
        why: What is wrong with it.
        key: Id of the key that sealed it.
        known: Ids of the keys that were given.
    """

    why: str = field(init=False)
    key: str
    known: Sequence[str]
    message = (
        "{where} is sealed with key {key}, and the keys given are {known}; add that key to "
        "seal=[...], behind the one that is to sign"
    )

    def __post_init__(self) -> None:
        self.why = f"it is sealed with key {self.key}"
        super().__post_init__()


class InvalidSealKey(ConfigurationError):
    """A key for the seal is not bytes, or too short to be safe.

    Attributes:
        found: What was given, described without the key itself.
        shortest: Bytes that a key has at least.
    """

    found: str
    shortest: int
    message = (
        "{found} cannot seal a database; give bytes, {shortest} or more, best 32 from "
        "secrets.token_bytes(32), and keep them out of the database's folder"
    )


class SealKeyMissing(EchelonsError):
    """A sealed database was opened without a key, and cannot be written.

    Attributes:
        path: The database.
    """

    path: str
    message = (
        "database {path!r} is sealed, and no key was given; it can be read like this, but rows "
        "without a seal would be refused later. Open it with SqliteCheckpointer(path, seal=key). "
        "Nothing was changed"
    )


class NotStorable(EchelonsError):
    """A value cannot be stored, as it could not be read back.

    Attributes:
        kind: The type of the value.
        why: What is wrong with it, and what can be done.
    """

    kind: str
    why: str
    message = "a value of type {kind} cannot be stored: {why}. Nothing was stored"


class InvalidAllowedType(ConfigurationError):
    """A type in `allowed_types` cannot be serialised.

    Attributes:
        kind: What was given.
        why: What is wrong with it.
    """

    kind: str
    why: str
    message = (
        "{kind} cannot be in allowed_types: {why}; name pydantic models, dataclasses, named tuples "
        "and enumerations, each under a name of its own"
    )


class UnreadableRecord(EchelonsError):
    """A stored request or response is damaged, or of another type.

    Attributes:
        model: What it should have been.
        why: What is wrong with it.
    """

    model: str
    why: str
    message = (
        "a stored {model} cannot be read: {why}; the run that wrote it is still in the checkpoints "
        "before it"
    )
