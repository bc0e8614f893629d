"""Ctrl-C while a tree runs: the first lets its step end, the second ends the process.

Everything stored by then stays stored, so neither loses completed work.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from echelons.cli.exit_codes import ExitCode


@contextmanager
def handle_ctrl_c(pause: Callable[[], None], abandon: Callable[[], None]) -> Iterator[None]:
    """Handle Ctrl-C while the context lasts.

    Args:
        pause: What the first one does; called in a signal handler.
        abandon: What the second one does right before it ends the process.
    """
    pressed = False

    def handle_signal(signum: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            abandon()
            # Not an exception: a thread that hangs in a model's call would hold it up.
            os._exit(ExitCode.INTERRUPTED)
        pressed = True
        pause()

    before = signal.signal(signal.SIGINT, handle_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
