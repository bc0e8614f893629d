"""A process that forks itself for each run of a driver, so that each need not import everything.

``python -m tests.scenarios.drivers.forks MODULE`` reads a JSON list of arguments from each line,
calls the module's ``main`` with them in a fork, and answers with the fork's exit code and what
``main`` returned. ``Forks`` is the other end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from echelons.testing.crash import fork
from tests.fork_server import REPOSITORY, ForkServer


class Ended(NamedTuple):
    """How a fork ended."""

    code: int
    returned: Any


class Forks:
    """Such a process, from outside.

    Args:
        server: It forks the process.
        module: The driver's name, as after ``python -m``.
    """

    def __init__(self, server: ForkServer, module: str) -> None:
        command = ("-m", "tests.scenarios.drivers.forks", module)
        self._process = server.start(*command, cwd=REPOSITORY, stdin=subprocess.PIPE, stderr=2)

    def run(self, *arguments: str) -> Ended:
        """Call the driver in a process of its own, and wait for its end."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        """Let it end."""
        self._process.communicate()


def main(module: str) -> None:
    """Fork for each line until nobody writes any more."""
    work = import_module(module).main
    for line in sys.stdin:
        process = fork(partial(work, *json.loads(line)))
        code = process.wait()
        # Who is killed returns nothing; any other error shows itself here.
        returned = None if code < 0 else process.result()
        print(json.dumps([code, returned]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
