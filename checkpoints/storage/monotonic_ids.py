"""Ids of checkpoints that grow, whatever the machine's clock does.

LangGraph makes an id of the time, later than the last one of its process, and whoever reads
takes the checkpoint with the greatest id for the latest. So a process whose clock is behind the
one that wrote before would store what nobody ever finds again. `GuardedSaver` shows each
id that it reads, and this process goes on from there.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from langgraph.checkpoint.base import id as langgraph_id

_VERSION = 6
_FURTHEST = 2**60 - 2**50
"""Ticks of 100 ns since 1582; what a uuid holds ends in the year 5236, and somebody may have
written an id that leaves no room for later ones."""


def follow(checkpoint_id: str) -> None:
    """Make every id that this process makes from now on a later one.

    Args:
        checkpoint_id: One that is stored. Others than LangGraph's own say nothing of the time.
    """
    ticks = _ticks(checkpoint_id)
    made: Any = langgraph_id
    if (made._last_v6_timestamp or 0) < ticks < _FURTHEST:
        made._last_v6_timestamp = ticks


def _ticks(checkpoint_id: str) -> int:
    try:
        found = UUID(checkpoint_id)
    except ValueError:
        return 0
    if found.version != _VERSION:
        return 0
    return (found.int >> 80) << 12 | (found.int >> 64) & 0xFFF
