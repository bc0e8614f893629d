"""``Meter``: what the agents of a tree have done in one turn, counted up to its limits.

The ledger keeps the counts, and a run takes steps and calls from it in blocks: what is in
hand is counted in memory. A run that dies takes its block with it, so a count may be too
high by a hundredth of the limit, and never too low.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from echelons.checkpoints.ledger import Transaction
from echelons.guards.gate import Halt, Step
from echelons.guards.limits import Limits

BLOCKS = 100
"""Blocks that a limit is taken in; a limit below 200 is taken one by one."""


class Spent(NamedTuple):
    """What a turn has spent; steps and calls in hand are counted as spent.

    Attributes:
        steps: Model calls, tool calls and runs of subordinates.
        calls: Model calls, where they are limited.
        tokens: Tokens that models reported.
        seconds: Time that it has been running.
    """

    steps: int = 0
    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0


class Meter:
    """Counts for one run. Not safe for several threads at once: the gate's lock guards it.

    Args:
        name: The ledger's key of the counts.
        limits: The root's.
        clock: Tells the time, in seconds from any moment.
    """

    def __init__(self, name: str, limits: Limits, clock: Callable[[], float] = monotonic) -> None:
        self._name = name
        self._limits = limits
        self._clock = clock
        self._stored: Spent | None = None
        self._steps = self._calls = self._tokens = 0
        self._since = clock()
        self._ended: dict[Step, Halt] = {}
        # What one by one is stored is lost one by one, if the process dies.
        exact = limits.tokens is not None or limits.seconds is not None
        self._step_block = 1 if exact else _block(limits.steps)
        self._call_block = 1 if exact else _block(limits.calls or 1)

    def spend(self, tokens: int) -> None:
        """Count the tokens of a reply."""
        self._tokens += tokens

    @property
    def owes(self) -> bool:
        """Whether it has counted anything, so that the ledger has to be told at the end."""
        return self._stored is not None

    def take(self, step: Step) -> Halt | bool:
        """Count a step.

        Returns:
            The limit that is reached; else whether it was counted. If not, nothing is left
            in hand, and ``refill`` gets more or finds that there is none.
        """
        if self._stored is None:
            return False
        reached = self._ended.get(step) or self._reached(self._stored)
        if reached:
            return reached
        calls = step is Step.MODEL and self._limits.calls is not None
        if self._steps < 1 or (calls and self._calls < 1):
            return False
        self._steps -= 1
        self._calls -= calls
        return True

    def refill(self, open_: Transaction, step: Step) -> Callable[[], None]:
        """Take what a step needs out of the ledger, in a transaction.

        Returns:
            What to do once that is committed; ``take`` then counts, or says which limit is
            reached.
        """
        before, version = self._read(open_)
        steps = calls = 0
        if self._steps < 1:
            steps = max(0, min(self._step_block, self._limits.steps - before.steps))
        if step is Step.MODEL and self._limits.calls is not None and self._calls < 1:
            calls = max(0, min(self._call_block, self._limits.calls - before.calls))
        keep = self._store(open_, before, version, (steps, calls))

        def committed() -> None:
            keep()
            self._note_the_end(step)

        return committed

    def give_back(self, open_: Transaction) -> Callable[[], None]:
        """Write down what is counted and give back what is in hand, in a transaction.

        Returns:
            What to do once that is committed.
        """
        before, version = self._read(open_)
        return self._store(open_, before, version, (-self._steps, -self._calls))

    def _read(self, open_: Transaction) -> tuple[Spent, int | None]:
        found = open_.get(self._name)
        return (Spent(**found.value), found.version) if found else (Spent(), None)

    def _store(
        self, open_: Transaction, before: Spent, version: int | None, taken: tuple[int, int]
    ) -> Callable[[], None]:
        steps, calls = taken
        tokens, now = self._tokens, self._clock()
        after = Spent(
            before.steps + steps,
            before.calls + calls,
            before.tokens + tokens,
            before.seconds + now - self._since,
        )
        open_.compare_and_set(self._name, version, after._asdict())

        def committed() -> None:
            self._stored, self._since = after, now
            self._tokens -= tokens
            self._steps += steps
            self._calls += calls

        return committed

    def _note_the_end(self, step: Step) -> None:
        limits = self._limits
        if self._steps < 1:
            self._ended = dict.fromkeys(Step, _halt(limits.steps, limits.steps, "steps"))
        elif step is Step.MODEL and limits.calls is not None and self._calls < 1:
            self._ended = {Step.MODEL: _halt(limits.calls, limits.calls, "model calls")}

    def _reached(self, stored: Spent) -> Halt | None:
        limits = self._limits
        if limits.tokens is not None and stored.tokens + self._tokens >= limits.tokens:
            return _halt(stored.tokens + self._tokens, limits.tokens, "tokens")
        if limits.seconds is not None:
            seconds = stored.seconds + self._clock() - self._since
            if seconds >= limits.seconds:
                return _halt(seconds, limits.seconds, "seconds")
        return None


def _block(limit: int) -> int:
    return max(1, limit // BLOCKS)


def _halt(spent: float, limit: float, what: str) -> Halt:
    return Halt("limit", f"{spent:.10g} of {limit:.10g} {what}")
