"""A process of its own that talks to the agents of a thread, as it is told over a pipe.

``Elsewhere`` is the end that a test holds. Each line is a JSON list, the name of a function
below and its arguments; each is answered by one line, what came of it or the error's name.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echelons import Result, Session
from echelons.errors import EchelonsError, get_error_name
from tests.fork_server import REPOSITORY, ForkServer
from tests.scenarios.drivers.askers import Askers
from tests.scenarios.drivers.office import build_office


class Elsewhere:
    """Such a process, from outside."""

    def __init__(self, server: ForkServer) -> None:
        self._process = server.start(
            "-m",
            "tests.scenarios.drivers.elsewhere",
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stderr=2,
        )

    def tell(self, method: str, *arguments: Any) -> None:
        """Tell it to do something, without waiting for it."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self._process.stdin.flush()

    def told(self) -> Any:
        """Wait until it is done, and return what came of it."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the process has died"
        return json.loads(line)

    def do(self, method: str, *arguments: Any) -> Any:
        """Tell it to do something, and return what came of it."""
        self.tell(method, *arguments)
        return self.told()

    def end(self) -> None:
        """Let it end."""
        self._process.communicate()


class Place:
    """What the process can be told to do."""

    def __init__(self) -> None:
        self._askers = Askers(1, 1)
        self._session = Session(self._askers.agent, ":memory:")

    def open(self, database: str, depth: int, width: int, working: bool) -> None:
        """Go to another thread."""
        self._session.close()
        self._askers = Askers(depth, width, _nothing if working else None)
        self._session = Session(self._askers.agent, database)

    def visit(self, database: str, log: str) -> None:
        """Go to the office of a database."""
        self._session.close()
        self._session = Session(build_office(Path(log)), database)

    def steer(self, path: str, text: str) -> None:
        """Redirect an agent."""
        self._session.steer(path, text)

    def dismiss(self, path: str) -> bool:
        """Dismiss an agent, and return whether it was not dismissed before."""
        return self._session.dismiss(path).is_new

    def inbox(self) -> dict[str, str]:
        """Return what is asked, by question's id."""
        return {each.id: each.value for each in self._session.inbox()}

    def answer(self, answers: dict[str, Any]) -> dict[str, Any]:
        return _told(self._session.answer(answers).result())

    def aanswer(self, answers: dict[str, Any]) -> dict[str, Any]:
        async def result() -> Result:
            return await (await self._session.aanswer(answers)).result()

        return _told(asyncio.run(result()))

    def runs(self) -> list[dict[str, int]]:
        """Return how often each question's tool has begun here, and how often it had its answer."""
        return [dict(self._askers.begun), dict(self._askers.answered)]


def _nothing() -> None:
    """Work that is done at once."""


def _told(result: Result) -> dict[str, Any]:
    asked = [each.id for each in result.questions]
    return {"text": result.text, "questions": asked, "queued": result.queued}


def main() -> None:
    """Do what is told until nobody tells anything any more."""
    place = Place()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        method: Callable[..., Any] = getattr(place, name)
        try:
            done = method(*arguments)
        except EchelonsError as error:
            done = {"error": get_error_name(error)}
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
