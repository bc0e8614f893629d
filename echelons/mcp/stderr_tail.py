"""`StderrTail`: what a server that was started as a process has said last, for errors."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TextIO

from echelons.text.redaction import redact_secrets
from echelons.text.sanitize import join_printable

LOG = logging.getLogger(__name__)

LONGEST_LINE = 4096
"""Bytes of a line of a server's standard error; a longer one is several."""
LONGEST_SAID = 200
"""Characters of each of its last lines that an error shows."""


class StderrTail:
    """The last lines that a process has written to its standard error, read in a thread."""

    def __init__(self) -> None:
        self._lines = deque[str](maxlen=3)
        self._thread: Thread | None = None

    @contextmanager
    def open(self) -> Iterator[TextIO]:
        """Yield the file that the process writes to; with its end of it, the thread ends, too."""
        reading, writing = os.pipe()
        self._thread = Thread(target=self._collect, args=(reading,), daemon=True)
        self._thread.start()
        with os.fdopen(writing, "w") as file:
            yield file

    def read(self) -> str:
        """Return the last lines in one, without secrets; waits a moment for the process's end."""
        if self._thread:
            self._thread.join(timeout=1)
        return " / ".join(self._lines)

    def _collect(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as file:
            while line := file.readline(LONGEST_LINE):
                text = join_printable(redact_secrets(line.decode(errors="replace")))
                if text:
                    LOG.debug("an MCP server has said: %s", text)
                    self._lines.append(text[:LONGEST_SAID])
