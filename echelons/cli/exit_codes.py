"""Exit codes of the commands."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended."""

    FINISHED = 0
    UNEXPECTED = 1
    USAGE = 2
    REFUSED = 3
    ASKING = 4
    FAILED = 5
    BROKEN = 6
    BUSY = 7
    NOBODY = 8
    INTERRUPTED = 130


EXIT_CODE_MEANINGS = {
    ExitCode.FINISHED: "finished",
    ExitCode.UNEXPECTED: "unexpected error; --debug shows where",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.REFUSED: "refused, with the reason: an unknown team, no such thread, no key …",
    ExitCode.ASKING: "the turn waits for an answer: `echelons inbox`",
    ExitCode.FAILED: "the turn stopped at an error, or is paused, and is stored: `echelons resume`",
    ExitCode.BROKEN: "`echelons trace --verify`, `doctor` or `check` found something broken",
    ExitCode.BUSY: "another process is running the thread: try again, or use another thread",
    ExitCode.NOBODY: "`echelons route` found no agent that fits the task",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C; all that was done is stored: `echelons resume`",
}
"""What each code means, as `echelons --help` says it."""
