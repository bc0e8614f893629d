"""Threads that begin together, so that they meet."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Do some work in so many threads that all begin together."""
    together = threading.Barrier(count)

    def begin(number: int) -> T:
        together.wait()
        return work(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # or a thread is often done before the next one begins
    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(begin, range(count)))
    finally:
        sys.setswitchinterval(interval)
