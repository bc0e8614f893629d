"""A process with a ledger of its own, which does what it is told, line by line.

``python -m tests.checkpoints.ledger.drivers.remote`` reads JSON lists from its input, the name
of a method below and its arguments, and answers each with what the method returned, or with
the name of the error that it raised. ``Remote`` is the other end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from echelons import SqliteCheckpointer
from echelons.checkpoints.ledger import Lease, SqliteLedger
from echelons.errors import EchelonsError, ThreadBusy
from tests.fork_server import REPOSITORY, ForkServer


class Obedient:
    """What a process can be told to do."""

    def __init__(self) -> None:
        self.saver = SqliteCheckpointer(":memory:")
        self.ledger = SqliteLedger(self.saver)
        self.leases: dict[str, Lease] = {}

    def open(self, database: str) -> None:
        """Give up everything, and open another database."""
        for lease in self.leases.values():
            lease.release()
        self.saver.close()
        self.saver = SqliteCheckpointer(database)
        self.ledger = SqliteLedger(self.saver)
        self.leases = {}

    def lease(self, name: str) -> int:
        self.leases[name] = self.ledger.lease(name)
        return self.leases[name].epoch

    def take_over(self, name: str) -> int:
        self.leases[name] = self.ledger.take_over(name)
        return self.leases[name].epoch

    def release(self, name: str) -> None:
        self.leases[name].release()

    def append(self, stream: str, count: int) -> list[int]:
        """Append so many records, each with the number of this process."""
        return [self.ledger.append(stream, [os.getpid(), place]) for place in range(count)]

    def append_under(self, name: str, stream: str, record: Any) -> int:
        return self.ledger.append(stream, record, fence=self.leases[name].fence)

    def count_under(self, name: str, key: str, times: int) -> int:
        """Add one to a key so many times, under a lease each time, and return how many clashed."""
        clashes = 0
        while times:
            try:
                lease = self.ledger.lease(name)
            except ThreadBusy:
                continue
            with lease:
                value, version = self.ledger.get(key) or (0, None)
                added = self.ledger.compare_and_set(key, version, value + 1, fence=lease.fence)
                clashes += added is None
            times -= 1
        return clashes

    def fork(self, name: str) -> list[Any]:
        """Fork a process that only waits, and return its id and whether it holds a lease."""
        reader, writer = os.pipe()
        forked = os.fork()
        if forked == 0:
            os.write(writer, b"held" if self.leases[name].held else b"free")
            os.close(writer)
            signal.pause()
        os.close(writer)
        with os.fdopen(reader, "rb") as told:
            return [forked, told.read(4).decode()]

    def stop_in_a_write(self, stream: str) -> None:
        """Stop in the middle of a commit, and answer when it has gone on."""

        def work(open_: Any) -> None:
            open_.append(stream, "slow")
            os.kill(os.getpid(), signal.SIGSTOP)

        self.ledger.commit(work)


class Remote:
    """Such a process, from outside."""

    def __init__(self, server: ForkServer) -> None:
        self.process = server.start(
            "-m",
            "tests.checkpoints.ledger.drivers.remote",
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stderr=2,
        )
        self._unanswered = 0
        self._stopped = False

    @property
    def is_idle(self) -> bool:
        """Whether it lives, and waits for what it is told next."""
        return self.process.poll() is None and not self._unanswered and not self._stopped

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, method: str, *arguments: Any) -> None:
        """Tell it to do something, without waiting for it."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self.process.stdin.flush()
        self._unanswered += 1

    def answer(self) -> Any:
        """Wait until it is done, and return what came of it."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the process has died"
        self._unanswered -= 1
        return json.loads(line)

    def do(self, method: str, *arguments: Any) -> Any:
        """Tell it to do something, and return what came of it."""
        self.tell(method, *arguments)
        return self.answer()

    def kill(self) -> None:
        """Kill it, and wait until it is dead."""
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        """Stop it, and wait until it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_until_stopped()

    def wait_until_stopped(self) -> None:
        """Wait until it has stopped itself."""
        self._stopped = True
        self.process.wait_until_stopped()

    def go_on(self) -> None:
        """Let it go on where it was stopped."""
        os.kill(self.pid, signal.SIGCONT)
        self._stopped = False


def main() -> None:
    """Do what is told until nobody tells anything any more."""
    obedient = Obedient()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        method: Callable[..., Any] = getattr(obedient, name)
        try:
            answer = method(*arguments)
        except EchelonsError as error:
            answer = {"error": type(error).__name__, **vars(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
