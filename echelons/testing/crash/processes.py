"""Child processes that are killed with `SIGKILL`, stopped with `SIGSTOP`, and woken.

`fork` copies this process in a few milliseconds, with everything that it has imported, so
a trial starts no new interpreter. `run` starts an interpreter for a module that forks.
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
    """A process did not finish its work: it raised an exception, or it was killed.

    Attributes:
        code: Its exit code, or the negative number of the signal that killed it.
        output: Its traceback or error output; empty if it was killed.
    """

    def __init__(self, code: int, output: str) -> None:
        self.code = code
        self.output = output
        super().__init__(f"the process ended with {code}\n{output}".strip())


class Process:
    """A child process.

    Attributes:
        pid: Its process id.
    """

    def __init__(self, pid: int, output: int) -> None:
        self.pid = pid
        self._output = output
        self._output_bytes = b""
        self._code: int | None = None

    def kill(self) -> int:
        """Kill it unless it has ended, wait for its end, and return its exit code."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def kill_after(self, seconds: float) -> int:
        """Kill it after that many seconds unless it has ended; return its exit code."""
        if self._code is None and not select.select([self._output], [], [], seconds)[0]:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def stop(self) -> bool:
        """Stop it unless it has ended, and return whether it is stopped."""
        if self._code is None:
            os.kill(self.pid, signal.SIGSTOP)
        return self.wait_until_stopped()

    def wait_until_stopped(self) -> bool:
        """Wait until it has stopped, perhaps by itself; return `False` if it ended instead."""
        if self._code is not None:
            return False
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._record_end(status)
            return False
        return True

    def wake(self) -> None:
        """Let it continue where it was stopped."""
        if self._code is None:
            os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Wait for its end; return its exit code, or the negative number of a signal."""
        if self._code is None:
            self._read()
            self._record_end(os.waitpid(self.pid, 0)[1])
        assert self._code is not None  # noqa: S101
        return self._code

    def result(self) -> Any:
        """Wait for its end, and return the value that its work returned.

        Raises:
            ProcessFailed: The work did not finish.
        """
        code = self.wait()
        if code != 0:
            raise ProcessFailed(code, self._output_bytes.decode())
        return json.loads(self._output_bytes)

    def _read(self) -> None:
        while piece := os.read(self._output, 65536):
            self._output_bytes += piece

    def _record_end(self, status: int) -> None:
        self._code = os.waitstatus_to_exitcode(status)
        self._read()
        os.close(self._output)


def fork(work: Callable[[], Any]) -> Process:
    """Call a function in a fork of this process; its return value must be JSON.

    Call this from a process without threads or open databases, because a fork inherits
    neither threads nor locks. `run` starts such a process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _run_and_exit(work, writer)
    os.close(writer)
    return Process(pid, reader)


def run(module: str, *arguments: str, folder: Path | None = None) -> Any:
    """Run a module in a new interpreter, and return the JSON that it prints.

    Args:
        module: Its name, as after `python -m`.
        arguments: Its command-line arguments.
        folder: Its working folder, from which it is imported.

    Raises:
        ProcessFailed: Its exit code was not 0.
    """
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(  # noqa: S603
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise ProcessFailed(ended.returncode, ended.stderr)
    return json.loads(ended.stdout)


def die() -> NoReturn:
    """Kill this process as `kill -9` does, without any cleanup or flush."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _run_and_exit(work: Callable[[], Any], writer: int) -> NoReturn:
    """Do the work, write its result to the pipe, and exit without running exit handlers."""
    code, output = 1, ""
    try:
        output = json.dumps(work())
        code = 0
    except BaseException:  # noqa: BLE001  sent to the parent
        output = traceback.format_exc()
    finally:
        with os.fdopen(writer, "w") as pipe:
            pipe.write(output)
        os._exit(code)
