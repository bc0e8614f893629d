"""Counts what the fake models and tools of the benchmarks have done: no work is cut short unseen.

Plain Python, for peers count in environments that have no LangChain.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """What has been done since it was last asked.

    Attributes:
        turns: Model turns.
        tools: Calls of the leaf's tool.
    """

    turns: int = 0
    tools: int = 0

    def take(self) -> tuple[int, int]:
        """Return both counts, and begin anew."""
        taken, self.turns, self.tools = (self.turns, self.tools), 0, 0
        return taken


TALLY = Tally()
