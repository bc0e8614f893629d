"""What tests of several folders share; the server's are skipped where it is not installed."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from typer.main import get_command

from echelons import SqliteCheckpointer
from echelons.guards import limits
from echelons.nodes import attempt, subordinate
from echelons.testing import FakeClock
from tests.fork_server import ForkServer
from tests.proof import WHOLE

# Each run draws other examples. How long one takes says nothing of the code on a loaded machine.
settings.register_profile(
    "echelons", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("echelons")


def refuse_far_connects(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse a connection that leaves this machine: no ordinary test needs the network."""
    if event not in ("socket.connect", "socket.sendto") or not isinstance(arguments[1], tuple):
        return
    host = str(arguments[1][0]).partition("%")[0]
    try:
        is_near = ip_address(host).is_loopback or host in ("0.0.0.0", "::")
    except ValueError:
        is_near = host in ("", "localhost")
    if not is_near:
        raise ConnectionRefusedError(f"a test connects to {arguments[1]}, which is not loopback")


# For the whole process: a hook cannot be taken away, and none should be missed.
sys.addaudithook(refuse_far_connects)
# A script's background job ignores Ctrl-C, and so would all processes that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Keep temporary files in memory where it has room: on a disk all takes an eighth longer."""
    memory = "/dev/shm"
    if WHOLE or not os.access(memory, os.W_OK):
        return
    found = os.statvfs(memory)
    # Some tests start programs that they have installed there.
    if found.f_bavail * found.f_frsize > 2**30 and not found.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector rest meanwhile, and look less often afterwards.

    What was imported is never looked at again. A tenth of the time of all tests is saved.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("langgraph_cli") is not None:
        return
    missing = pytest.mark.skip(reason="needs the extra echelons[studio]; `make studio-test` has it")
    for item in items:
        if item.get_closest_marker("studio") is not None:
            item.add_marker(missing)


@pytest.fixture(scope="session", autouse=True)
def commands_built_once() -> Iterator[None]:
    """A runner would build all commands for each call, which takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Starts processes that need not import everything."""
    with ForkServer() as server:
        yield server


@pytest.fixture(params=["ours", "in memory"])
def any_saver(request: pytest.FixtureRequest) -> Iterator[BaseCheckpointSaver[Any]]:
    """A saver whose journal is in its file, and one whose journal is in memory."""
    if request.param == "ours":
        with SqliteCheckpointer(":memory:") as ours:
            yield ours
    else:
        yield InMemorySaver()


@pytest.fixture
def upstage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A provider's package where LangChain looks for it; it reads the variables of OpenAI."""
    package = tmp_path / "packages" / "langchain_upstage"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from langchain_openai import ChatOpenAI\n\n\nclass ChatUpstage(ChatOpenAI):\n    pass\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    yield
    sys.modules.pop("langchain_upstage", None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The time of deadlines: it stands still until somebody moves it."""
    clock = FakeClock()
    for module in (attempt, limits, subordinate):
        monkeypatch.setattr(module, "monotonic", clock.now)
    return clock


@pytest.fixture
async def loop_clock(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The same, and the time of the event loop with it."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", clock.now)
    return clock
