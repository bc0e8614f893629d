"""The real local server of LangGraph on our own ``langgraph.json``, for the tests beside it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

ROOT = Path(__file__).parents[2]
SECONDS = 30
"""How long the server may take to start and to end."""
RETRIES = 7
"""Attempts to connect while it starts: with httpx's waits, some 31 seconds."""
QUIET = {
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGSMITH_TRACING": "false",
    "LOG_COLOR": "false",
}
"""With these, the server asks nothing of the internet."""


@dataclass(frozen=True)
class Server:
    """A server that is up.

    Attributes:
        url: Where it listens.
        folder: Where it was started; it keeps its own records there.
        database: The database that it serves.
        process: The server itself.
    """

    url: str
    folder: Path
    database: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        """Everything that it has said."""
        return (self.folder / "log").read_text(encoding="utf-8")

    def client(self) -> SyncLangGraphClient:
        """Return a client of it."""
        return get_sync_client(url=self.url)

    def stop(self) -> int:
        """End it as Ctrl-C does, and return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SECONDS)


@contextmanager
def serving(folder: Path, docs: Path) -> Iterator[Server]:
    """Start a server in a folder in which only links to the repository stand.

    Relative paths of a ``langgraph.json`` count from where the server is started.
    """
    for name in ("langgraph.json", "echelons"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    database = folder / "threads.sqlite"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--config", "langgraph.json"],
            cwd=folder,
            env=_environment(ECHELONS_DB=str(database), ECHELONS_DOCS=str(docs)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    server = Server(f"http://127.0.0.1:{port}", folder, database, process)
    try:
        _wait_for(server)
        yield server
    finally:
        process.kill()
        process.wait()


def _environment(**own: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LANGGRAPH", "LANGSMITH", "LANGCHAIN", "ECHELONS"))
    }
    return kept | QUIET | own


def _wait_for(server: Server) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(retries=RETRIES)) as client:
        try:
            client.get(f"{server.url}/ok").raise_for_status()
        except httpx.HTTPError as error:
            pytest.fail(f"the server did not start: {error}\n{server.log}")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents of the research team: two folders, nested."""
    docs = tmp_path_factory.mktemp("docs")
    (docs / "birds" / "sea").mkdir(parents=True)
    (docs / "birds" / "sea" / "terns.md").write_text(
        "# Terns\n\nThe Arctic tern flies from pole to pole every year.\n", encoding="utf-8"
    )
    (docs / "birds" / "owls.md").write_text(
        "# Owls\n\nThe barn owl hunts mice at night.\n", encoding="utf-8"
    )
    (docs / "stones.md").write_text("# Stones\n\nGranite is hard.\n", encoding="utf-8")
    return docs


Launch: TypeAlias = Callable[[Path], AbstractContextManager[Server]]


@pytest.fixture(scope="session")
def launch(corpus: Path) -> Launch:
    """Starts a server in a folder."""
    return partial(serving, docs=corpus)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, launch: Launch) -> Iterator[Server]:
    """A server that all tests share; each works on threads of its own."""
    with launch(tmp_path_factory.mktemp("server")) as started:
        yield started
