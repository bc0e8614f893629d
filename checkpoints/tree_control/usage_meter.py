"""`Meter`: the steps, model calls, tokens and seconds of one turn, counted up to its limits.

The ledger keeps the counts. Each step is committed before it is made, so that the counts of
steps and calls are exact however a run ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from pydantic import FiniteFloat

from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Transaction
from echelons.guards.gate import Halt, Step
from echelons.guards.limits import Limits


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """The amounts that a turn has spent."""

    steps: int = 0  # model calls, tool calls and runs of subordinates
    calls: int = 0  # model calls
    tokens: int = 0  # tokens that models reported
    seconds: FiniteFloat = 0.0  # time that it has been running


METER: Final = Records[TurnUsage]("meter", TurnUsage, raw=sys.maxsize)
"""The counts of a turn, by its id and the path of the agent at the root of its tree."""


class Meter:
    """Counts for one run. Not safe for several threads at once: the gate's lock guards it."""

    def __init__(self, name: str, limits: Limits, clock: Callable[[], float] = monotonic) -> None:
        # Whether it has counted a step.
        self.has_counted = False
        self._name = name
        self._limits = limits
        self._clock = clock
        self._tokens = 0
        self._since = clock()

    def add_tokens(self, tokens: int) -> None:
        """Count the tokens of a reply, which are stored with the next step."""
        self._tokens += tokens

    @property
    def limits_tokens(self) -> bool:
        """Whether there is a limit of tokens."""
        return self._limits.tokens is not None

    def count_ended_call(self, open_: Transaction, tokens: int, *, is_step: bool) -> None:
        """Count a model call that has ended, whatever limit that reaches."""
        record = open_.get_record(METER, self._name)
        before = record.value if record else TurnUsage()
        spent = TurnUsage(
            before.steps + is_step, before.calls + is_step, before.tokens + tokens, before.seconds
        )
        open_.set_read(self._name, record.version if record else None, METER.encode(spent))

    def count(self, open_: Transaction, step: Step | None = None) -> Callable[[], Halt | None]:
        """Count a step, or the end of a run, with the tokens and seconds since the last step.

        The transaction may be rolled back, so nothing changes here before its commit. The caller
        then calls the result, which returns the limit that is reached, if one is.
        """
        record = open_.get_record(METER, self._name)
        before = record.value if record else TurnUsage()
        tokens, now = self._tokens, self._clock()
        spent = TurnUsage(
            before.steps + (step is not None),
            before.calls + (step is Step.MODEL),
            before.tokens + tokens,
            before.seconds + now - self._since,
        )
        if step and (reached := self._find_reached_limit(spent, step)):
            return lambda: reached
        open_.set_read(self._name, record.version if record else None, METER.encode(spent))

        def note_commit() -> None:
            self.has_counted = True
            self._tokens -= tokens
            self._since = now

        return note_commit

    def _find_reached_limit(self, spent: TurnUsage, step: Step) -> Halt | None:
        limits = self._limits
        if spent.steps > limits.steps:
            return _make_halt(limits.steps, limits.steps, "steps")
        if step is Step.MODEL and limits.calls is not None and spent.calls > limits.calls:
            return _make_halt(limits.calls, limits.calls, "model calls")
        if limits.tokens is not None and spent.tokens >= limits.tokens:
            return _make_halt(spent.tokens, limits.tokens, "tokens")
        if limits.seconds is not None and spent.seconds >= limits.seconds:
            return _make_halt(spent.seconds, limits.seconds, "seconds")
        return None


def _make_halt(spent: float, limit: float, what: str) -> Halt:
    return Halt("limit", f"{spent:.10g} of {limit:.10g} {what}")
