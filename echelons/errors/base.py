"""The root of the tree of errors, and how much of a refused value its messages show.

Every other file of the package imports this one.
"""

from __future__ import annotations

from reprlib import Repr
from typing import Any

SHORT = Repr()
SHORT.maxstring = SHORT.maxother = 200
"""How much of a value that was refused is shown."""


class EchelonsError(Exception):
    """The root of all errors of this library."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would make a copy of the message alone, and an error is made of its fields.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[EchelonsError], args: tuple[Any, ...], fields: dict[str, Any]
) -> EchelonsError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error
