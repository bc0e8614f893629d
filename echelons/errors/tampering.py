"""Errors of what is stored: it was changed, is sealed, or could not be read back.

Raised where rows are sealed and read, and where values are written and made again.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError
from echelons.errors.configuration import ConfigurationError


class CheckpointTampered(EchelonsError):
    """A stored row is damaged, stands in another place, or was written by something else.

    Attributes:
        where: The row.
        why: What is wrong with it.
    """

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(
            f"{where} is not what was stored: {why}. Nothing of it was used, and other threads "
            "can be read. Restore a backup of the database, or delete the thread"
        )


class UnknownSealKey(CheckpointTampered):
    """A row was sealed with another key than those that were given.

    Attributes:
        where: The row.
        why: What is wrong with it.
        key: Id of the key that sealed it.
        known: Ids of the keys that were given.
    """

    def __init__(self, where: str, key: str, known: Sequence[str]) -> None:
        self.where = where
        self.key = key
        self.known = tuple(known)
        self.why = f"it is sealed with key {key}"
        EchelonsError.__init__(
            self,
            f"{where} is sealed with key {key}, and the keys given are {', '.join(self.known)}; "
            "add that key to seal=[...], behind the one that is to sign",
        )


class InvalidSealKey(ConfigurationError):
    """A key for the seal is no bytes, or too short to be safe.

    Attributes:
        found: What was given, described without the key itself.
        shortest: Bytes that a key has at least.
    """

    def __init__(self, found: str, shortest: int) -> None:
        self.found = found
        self.shortest = shortest
        super().__init__(
            f"{found} cannot seal a database; give bytes, {shortest} or more, best 32 from "
            "secrets.token_bytes(32), and keep them out of the database's folder"
        )


class SealKeyMissing(EchelonsError):
    """A sealed database was opened without a key, and something was to be written.

    Attributes:
        path: The database.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"database {path!r} is sealed, and no key was given; it can be read like this, but "
            "rows without a seal would be refused later. Open it with "
            "SqliteCheckpointer(path, seal=key). Nothing was changed"
        )


class NotStorable(EchelonsError):
    """A value was to be stored that could not be read back; it is refused, not lost later.

    Attributes:
        kind: The type of the value.
        why: What is wrong with it, and what can be done.
    """

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        self.why = why
        super().__init__(f"a value of type {kind} cannot be stored: {why}. Nothing was stored")


class InvalidAllowedType(ConfigurationError):
    """Something in ``allowed_types`` cannot be written and made again.

    Attributes:
        kind: What was given.
        why: What is wrong with it.
    """

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        self.why = why
        super().__init__(
            f"{kind} cannot be in allowed_types: {why}; name pydantic models, dataclasses, "
            "named tuples and enumerations, each under a name of its own"
        )


class UnreadableRecord(EchelonsError):
    """A stored request or response is damaged, or something else than it says.

    Attributes:
        model: What it should have been.
        why: What is wrong with it.
    """

    def __init__(self, model: str, why: str) -> None:
        self.model = model
        self.why = why
        super().__init__(
            f"a stored {model} cannot be read: {why}; "
            "the run that wrote it is still in the checkpoints before it"
        )
