"""The errors of Echelons: one tree under `EchelonsError`, imported from here.

An error is a class of its own where code would catch it by itself; otherwise it is the class of
its family with a stable `code`. Its facts are attributes, and its message tells the value, the
limit and the way out. Functions that are named after a code return an error that is raised at
several places. All codes are listed in `docs/errors.md`.

One class is no error: `ForeignSaverWarning`, of `storage`.
"""

from __future__ import annotations

from echelons.errors.base import *
from echelons.errors.configuration import *
from echelons.errors.execution import *
from echelons.errors.storage import *

__all__: list[str]

_names = sorted(
    name
    for name, value in globals().items()
    if isinstance(value, type) and issubclass(value, EchelonsError)
)
# Computed, so that a name is written once; type checkers follow the star imports above.
globals()["__all__"] = _names
for _name in _names:
    # A traceback and a pickle name an error by the address that it is imported from.
    globals()[_name].__module__ = __name__
