"""An expected error by its code."""

from __future__ import annotations

import re

import pytest

from echelons.errors import EchelonsError


def raises_code(
    code: str, match: str | re.Pattern[str] | None = None
) -> pytest.RaisesExc[EchelonsError]:
    """Return a context that expects an error with a code."""
    return pytest.raises(EchelonsError, match=match, check=lambda error: error.code == code)
