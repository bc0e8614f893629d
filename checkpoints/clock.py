"""The time of what is stored: UTC, and replaced by a test's own clock where it matters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]


def now() -> datetime:
    """Return the time, UTC."""
    return datetime.now(UTC)
