"""Why something failed that others wrote: a matcher, embeddings, a model that derives.

``routing`` and ``capabilities`` ask before they go on without it, since not all that comes as an
exception is a failure.
"""

from __future__ import annotations

from typing import Final

from echelons.errors import EchelonsError

LONGEST_REASON: Final = 200
"""Characters that are told of a reason."""


def failure(error: BaseException, own: type[EchelonsError]) -> str:
    """Return why something failed, in a line.

    Args:
        error: What was raised.
        own: The error of ours that says that it failed.

    Raises:
        BaseException: The error itself, if it is no failure of what raised it: a cancellation,
            a signal of the graph around, or another error of ours, such as a missing key.

    Examples:
        >>> from echelons.errors import MatcherFailed
        >>> failure(ConnectionError("no route to host"), MatcherFailed)
        'ConnectionError: no route to host'
    """
    # LangGraph interrupts by exceptions. It is not imported here, hence the name.
    signal = any(each.__name__ == "GraphBubbleUp" for each in type(error).__mro__)
    ours = isinstance(error, EchelonsError) and not isinstance(error, own)
    if signal or ours or not isinstance(error, Exception):
        raise error
    text = str(error)[: 2 * LONGEST_REASON]
    kept = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join([f"{type(error).__name__}:", *kept.split()])
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"
