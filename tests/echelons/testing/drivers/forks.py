"""Forks processes to every end that a process can come to, and prints what it sees of them."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from echelons.testing.crash import Process, ProcessFailed, die, fork


def failing() -> float:
    """Fail."""
    return 1 / 0


def waiting() -> None:
    """Wait for ever."""
    signal.pause()


def why(process: Process) -> list[Any]:
    """Return how a process failed."""
    try:
        return [process.result()]
    except ProcessFailed as failed:
        return [failed.code, failed.output]


def stopped(folder: Path) -> dict[str, Any]:
    """Stop a process in the middle of its work, and wake it."""
    file = folder / "said"

    def work() -> None:
        file.write_text("before\n")
        os.kill(os.getpid(), signal.SIGSTOP)
        file.write_text("before\nafter\n")

    process = fork(work)
    process.wait_until_stopped()
    before = file.read_text().splitlines()
    process.wake()
    process.wait()
    return {"stopped": before, "woken": file.read_text().splitlines()}


def dead() -> list[Any]:
    """Wait for a process to stop that dies."""
    process = fork(die)
    stands = process.wait_until_stopped()
    process.wake()
    return [stands, process.stop(), process.kill()]


def killed(folder: Path) -> list[Any]:
    """Kill a process that would say something when it ends."""

    def work() -> None:
        try:
            waiting()
        finally:
            (folder / "cleaned").touch()

    process = fork(work)
    code = process.kill_after(0)
    return [code, "cleaned" if (folder / "cleaned").exists() else ""]


def main(place: str) -> None:
    """Print what was seen."""
    folder, pid = Path(place), os.getpid()
    long = "x" * 1_000_000
    told = fork(lambda: {"pid differs": os.getpid() != pid, "long": long}).result()
    seen = {
        "result": {**told, "long": len(told["long"])},
        "failed": why(fork(failing)),
        "killed": killed(folder),
        "in time": fork(lambda: None).kill_after(60),
        "dead": dead(),
        **stopped(folder),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
