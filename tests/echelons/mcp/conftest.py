"""The servers of the tests, which are written with the official SDK, and what they note."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from echelons.mcp import StdioServer
from tests.fork_server import ForkedProcess, ForkServer

SERVERS = Path(__file__).parent / "servers"


class Notes:
    """The lines that a server notes in a pipe: reading one waits for it, and needs no clock."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Open for writing, too, so that the pipe does not end with a server.
        self._file = os.fdopen(os.open(path, os.O_RDWR), "r", encoding="utf-8")

    def read(self) -> str:
        return self._file.readline().strip()

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    """What a server notes."""
    notes = Notes(tmp_path / "notes")
    yield notes
    notes.close()


_forks: list[ForkServer] = []


@pytest.fixture(scope="session", autouse=True)
def forks(fork_server: ForkServer) -> None:
    """Let the servers begin as forks: to import the SDK takes most of the time of such a test."""
    _forks.append(fork_server)


def shop_server(script: str = "shop.py", *args: str, **options: Any) -> StdioServer:
    """Return a server of `servers/`, over stdio."""
    options.setdefault("name", "shop")
    command, *words = _forks[-1].build_command(str(SERVERS / script), *args)
    return StdioServer(command, words, **options)


@pytest.fixture
def http_shop(notes: Notes) -> Iterator[tuple[str, ForkedProcess]]:
    """The address of the shop over HTTP, and its process."""
    with serve_shop(notes) as (port, process):
        yield f"http://127.0.0.1:{port}/mcp", process


@contextmanager
def serve_shop(notes: Notes, port: int = 0) -> Iterator[tuple[int, ForkedProcess]]:
    """Serve the shop over HTTP, and return the port and the process, which is ready."""
    with serve("shop.py", "http", str(port), env={"SHOP_LOG": str(notes.path)}) as ready:
        yield ready


@contextmanager
def serve(
    script: str, *args: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[int, ForkedProcess]]:
    """Start a server that prints its port when it is ready, and return both."""
    process = _forks[-1].start(str(SERVERS / script), *args, env={**os.environ, **(env or {})})
    try:
        assert process.stdout
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.communicate()
