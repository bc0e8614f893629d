"""How much of a long proof is tried: a sample by `make test`, all of it by `make proof`.

`make proof` runs `tests/crash/` and every module of tests that imports this one.
"""

from __future__ import annotations

import os
from typing import TypeVar

Chosen = TypeVar("Chosen")

WHOLE = os.environ.get("ECHELONS_PROOF") == "whole"


def sample(small: Chosen, whole: Chosen) -> Chosen:
    """Return the size of the sample, or of the whole where `make proof` asks for it."""
    return whole if WHOLE else small
