"""`WorkClock`: the seconds in which the agents of a run work on what they were granted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from threading import Lock
from time import monotonic


class WorkClock:
    """The seconds of work on each grant that are not stored yet.

    Safe for any number of threads.

    Args:
        clock: Tells the time, in seconds from any moment.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._elapsed: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._workers = Counter[str]()

    @property
    def has_seconds(self) -> bool:
        """Whether any seconds are not stored yet."""
        return bool(self._since or self._elapsed)

    def begin(self, ids: Iterable[str]) -> None:
        """Let the seconds of grants pass, until `end` was called as often."""
        with self._lock:
            for id_ in ids:
                self._workers[id_] += 1
                self._since.setdefault(id_, self._clock())

    def end(self, ids: Iterable[str]) -> None:
        """Stop the seconds of grants."""
        with self._lock:
            for id_ in ids:
                self._workers[id_] -= 1
                if self._workers[id_] == 0 and id_ in self._since:
                    passed = self._clock() - self._since.pop(id_)
                    self._elapsed[id_] = self._elapsed.get(id_, 0.0) + passed

    def read(self, id_: str) -> float:
        """Return the seconds of a grant."""
        now = self._clock()
        with self._lock:
            return self._elapsed.get(id_, 0.0) + now - self._since.get(id_, now)

    def read_all(self) -> tuple[float, dict[str, float]]:
        """Return the time, and the seconds of each grant up to then."""
        now = self._clock()
        with self._lock:
            ids = {*self._elapsed, *self._since}
            passed = (self._elapsed.get(id_, 0.0) + now - self._since.get(id_, now) for id_ in ids)
            return now, dict(zip(ids, passed, strict=True))

    def forget(self, ids: Iterable[str], until: float) -> None:
        """Forget the seconds of grants up to a time, as they are stored."""
        with self._lock:
            for id_ in ids:
                self._elapsed.pop(id_, None)
                if id_ in self._since:
                    self._since[id_] = until

    def stop(self, id_: str) -> None:
        """Forget all seconds of a grant; none pass any more."""
        with self._lock:
            self._elapsed.pop(id_, None)
            self._since.pop(id_, None)
