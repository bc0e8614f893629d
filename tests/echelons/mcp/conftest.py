"""The servers of the tests, which are written with the official SDK, and what they note."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from echelons.mcp import StdioServer

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


def shop_server(script: str = "shop.py", *args: str, **options: Any) -> StdioServer:
    """Return a server of `servers/`, over stdio."""
    options.setdefault("name", "shop")
    return StdioServer(sys.executable, [str(SERVERS / script), *args], **options)


@pytest.fixture
def http_shop(notes: Notes) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of the shop over HTTP, and its process."""
    with serve_shop(notes) as (port, process):
        yield f"http://127.0.0.1:{port}/mcp", process


@contextmanager
def serve_shop(notes: Notes, port: int = 0) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Serve the shop over HTTP, and return the port and the process, which is ready."""
    environment = {**os.environ, "SHOP_LOG": str(notes.path)}
    command = [sys.executable, str(SERVERS / "shop.py"), "http", str(port)]
    with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout
        yield int(process.stdout.readline()), process
        process.kill()
