"""Each test runs in a process and goes on in another; those of other packages run where they are.

`make hosts` has deepagents and langgraph-supervisor, in an environment of its own.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.fork_server import ForkServer

FILES = {"deepagents": "test_deep_agents.py", "langgraph_supervisor": "test_supervisors.py"}
collect_ignore = [file for package, file in FILES.items() if find_spec(package) is None]


class Visit(Protocol):
    """How a test has a process run something on the database of the test."""

    def __call__(self, answers: dict[str, Any] | None = None, **what: str) -> dict[str, Any]: ...


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def visit(request: pytest.FixtureRequest, fork_server: ForkServer, tmp_path: Path) -> Visit:
    """Runs a `host` or a `guest` of this folder in a process of its own, see `process`."""

    def visit(answers: dict[str, Any] | None = None, **what: str) -> dict[str, Any]:
        given = {"answers": answers, "database": str(tmp_path / "trip.sqlite")}
        given |= {"loop": request.param, **what}
        return dict(fork_server.load("tests.hosts.process", json.dumps(given)))

    return visit
