"""A peer at work in a process of its own: started, told what to do, and ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from benchmarks.measure import Cost
from benchmarks.peers.entries import Entry
from benchmarks.peers.environments import interpreter
from benchmarks.peers.work import Size

SERVE = Path(__file__).with_name("serve.py")


class PeerFailed(Exception):
    """A peer did not do its work, or not all of it; the text says what was wrong."""


@dataclass(frozen=True, slots=True)
class Done:
    """A work that was done.

    Attributes:
        cost: What it took, measured in the peer's process.
        said: The last answer.
        turns: Model turns.
        tools: Calls of the leaf's tool.
    """

    cost: Cost
    said: str
    turns: int
    tools: int


class PeerProcess:
    """A peer that waits for work.

    Args:
        process: Its process.
        errors: What it prints.
    """

    def __init__(self, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self._process = process
        self._errors = errors
        opening = self._read()
        self.works: list[str] = opening["works"]
        self.versions: dict[str, str] = opening["versions"]

    def do(self, work: str, number: int) -> Done:
        """Have a work done on the thread of that number.

        Raises:
            PeerFailed: It raised, or the process has ended.
        """
        told = self._ask({"work": work, "number": number})
        if "error" in told:
            raise PeerFailed(told["error"])
        cost = Cost(told["cpu"], told["wall"])
        return Done(cost, told["said"], told["turns"], told["tools"])

    def megabytes(self, work: str) -> float:
        """Return the size of what a work has stored."""
        return float(self._ask({"size": work})["megabytes"])

    def keeps_the_leaf(self) -> bool:
        """Return whether the steps of the chain's leaf are stored."""
        return bool(self._ask({"size": "chain"})["leaf"])

    def close(self) -> None:
        """Let it end by itself: there are no more commands."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        try:
            self._process.stdin.write(f"{json.dumps(command)}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(self._last_word()) from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise PeerFailed(self._last_word())
        told: dict[str, Any] = json.loads(line)
        return told

    def _last_word(self) -> str:
        self._errors.seek(0)
        return (self._errors.read().strip().splitlines() or ["it ended without a word"])[-1]


@contextmanager
def started(entry: Entry, size: Size) -> Iterator[PeerProcess]:
    """Start a peer in its environment, and end it afterwards.

    Raises:
        NotInstallable: Its environment could not be made.
        PeerFailed: It could not start.
    """
    python = interpreter(entry.environment) if entry.environment else Path(sys.executable)
    with TemporaryDirectory() as folder, TemporaryFile("w+") as errors:
        arguments = [entry.module, entry.setting, folder, str(size.crowd), str(size.latency)]
        with subprocess.Popen(
            [str(python), str(SERVE), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process:
            try:
                peer = PeerProcess(process, errors)
                yield peer
                peer.close()
            finally:
                process.kill()
