"""Keeps the ids of checkpoints growing, even if the clock is set back.

LangGraph makes an id from the time, later than the last one of its process, and the checkpoint
with the greatest id counts as the latest. A process whose clock is behind that of an earlier
writer would store checkpoints that are never read. So `VerifiedSaver` reports each id that it
reads, and ids of this process continue after it.
"""

from __future__ import annotations

from uuid import UUID

from echelons.langgraph_internals import advance_checkpoint_ids

_UUID_VERSION = 6
_LATEST_TICKS = 2**60 - 2**50
"""Ticks of 100 ns since 1582. A uuid can hold ticks up to the year 5236; a stored id near that end
is ignored, because it would leave no room for later ones."""


def advance_past(checkpoint_id: str) -> None:
    """Make all further ids of this process later than a stored one.

    Args:
        checkpoint_id: The stored id; ignored unless it is a uuid of version 6, as LangGraph's are.
    """
    ticks = _parse_ticks(checkpoint_id)
    if ticks < _LATEST_TICKS:
        advance_checkpoint_ids(ticks)


def _parse_ticks(checkpoint_id: str) -> int:
    try:
        found = UUID(checkpoint_id)
    except ValueError:
        return 0
    if found.version != _UUID_VERSION:
        return 0
    return (found.int >> 80) << 12 | (found.int >> 64) & 0xFFF
