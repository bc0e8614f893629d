"""Processes that are killed with ``SIGKILL``, stopped with ``SIGSTOP``, and woken.

``fork`` makes one out of this process in a few milliseconds, with all that it has imported:
a trial costs no new interpreter. ``run`` starts an interpreter for a module that forks.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


class ProcessFailed(Exception):
    """A process did not do its work: it raised something, or it was killed.

    Attributes:
        code: How it ended: its exit code, or a signal's number below zero.
        told: What it said of it; empty if it was killed.
    """

    def __init__(self, code: int, told: str) -> None:
        self.code = code
        self.told = told
        super().__init__(f"the process ended with {code}\n{told}".strip())


class Process:
    """Another process of this machine, started by this one.

    Attributes:
        pid: Its number.
    """

    def __init__(self, pid: int, output: int) -> None:
        self.pid = pid
        self._output = output
        self._told = b""
        self._code: int | None = None

    def kill(self) -> int:
        """Kill it unless it has ended, wait for that, and return how it ended."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def kill_after(self, seconds: float) -> int:
        """Kill it after so many seconds unless it has ended by then; return how it ended."""
        if self._code is None and not select.select([self._output], [], [], seconds)[0]:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def stop(self) -> bool:
        """Stop it unless it has ended, and return whether it now stands still."""
        if self._code is None:
            os.kill(self.pid, signal.SIGSTOP)
        return self.wait_until_stopped()

    def wait_until_stopped(self) -> bool:
        """Wait until it has stopped, perhaps by itself; return ``False`` if it has ended."""
        if self._code is not None:
            return False
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._end(status)
            return False
        return True

    def wake(self) -> None:
        """Let it go on where it was stopped."""
        if self._code is None:
            os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code, or a signal's number below zero."""
        if self._code is None:
            self._read()
            self._end(os.waitpid(self.pid, 0)[1])
        assert self._code is not None  # noqa: S101
        return self._code

    def result(self) -> Any:
        """Wait until it has ended, and return what its work returned.

        Raises:
            ProcessFailed: It has not come to its end.
        """
        code = self.wait()
        if code != 0:
            raise ProcessFailed(code, self._told.decode())
        return json.loads(self._told)

    def _read(self) -> None:
        while piece := os.read(self._output, 65536):
            self._told += piece

    def _end(self, status: int) -> None:
        self._code = os.waitstatus_to_exitcode(status)
        self._read()
        os.close(self._output)


def fork(work: Callable[[], Any]) -> Process:
    """Do some work in a fork of this process; what it returns must be JSON.

    To be called from a process that runs no threads and has no database open: a fork has
    neither its threads nor its locks. ``run`` starts one that has not.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _work(work, writer)
    os.close(writer)
    return Process(pid, reader)


def run(module: str, *arguments: str, folder: Path | None = None) -> Any:
    """Run a module in an interpreter of its own, and return the JSON that it prints.

    Args:
        module: Its name, as after ``python -m``.
        arguments: What follows on its command line.
        folder: Where it runs; from there it is imported.

    Raises:
        ProcessFailed: It did not come to its end.
    """
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(  # noqa: S603
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise ProcessFailed(ended.returncode, ended.stderr)
    return json.loads(ended.stdout)


def die() -> NoReturn:
    """Kill this process as ``kill -9`` does: nothing is cleaned up, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _work(work: Callable[[], Any], writer: int) -> NoReturn:
    """Do the work and end this process, whatever happens, past all that its parent set up."""
    code, told = 1, ""
    try:
        told = json.dumps(work())
        code = 0
    except BaseException:  # noqa: BLE001  told to the parent
        told = traceback.format_exc()
    finally:
        with os.fdopen(writer, "w") as pipe:
            pipe.write(told)
        os._exit(code)
