"""A folder with a module of teams, and ways to call the command line in it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from echelons.cli.app import app
from tests.fork_server import Ended, ForkedProcess, ForkServer

TRIPS = '''
"""Teams that a test calls by name."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from langgraph.types import interrupt

from echelons import Agent, DelegationPolicy, Limits, Permissions, Spawn
from echelons.capabilities.capability import check_capabilities
from echelons.guards.budget import Budget
from echelons.routing import LexicalMatcher
from echelons.testing import Call, Reply, ScriptedModel, delegate, report


def confirm(what: str) -> str:
    """Ask a human to confirm something."""
    return f"The human said {interrupt({'question': what})!r}."


def gate(name: str) -> str:
    """Say that it has begun, then wait until it is let through; each time is noted."""
    with Path("gate.log").open("a") as log:
        log.write(f"{name}\\n")
    Path("begun").write_text(name)  # a pipe: whoever waits for it goes on
    return Path("go").read_text()


def hang(messages):
    """A model that never answers."""
    return gate("model")


def asks(answer="Booked."):
    model = ScriptedModel(
        {
            "head": [delegate("clerk", "book a table"), Reply(answer, usage=(20, 5))],
            "clerk": [
                Reply(calls=[Call("confirm", {"what": "Book it?"})], usage=(10, 2)),
                "It is booked.",
            ],
        }
    )
    clerk = Agent("clerk", "Books tables", tools=[confirm])
    return Agent("head", "Plans trips", model=model, subordinates=[clerk])


asking = asks()
growing = Agent(
    "head",
    "Plans trips",
    model=ScriptedModel(
        {
            "head": [
                Call(
                    "spawn_subordinate",
                    {"role": "scout", "message": "look", "contact_user": True, "keep": True},
                ),
                "Seen.",
            ],
            "scout": [Call("ask_user", {"question": "Which way?"}), "North."],
        }
    ),
    theme="birds",
    permissions=Permissions(contact_user=True, spawn=Spawn(levels=1)),
)
held = Agent(
    "head",
    "Plans trips",
    model=ScriptedModel(
        {
            "head": [Call("spawn_subordinate", {"role": "scout", "message": "look"}), "Over."],
            "scout": ["North."],
        }
    ),
    permissions=Permissions(spawn=Spawn(levels=1), approvals={"spawn_subordinate": "ask"}),
)
spared = replace(asking, subordinates=[*asking.subordinates, Agent("spare", "Waits")])
plain = Agent("head", "Answers", model=ScriptedModel(["Fine.", "Fine.", "Fine."]))
unasked = Agent(
    "head", model=ScriptedModel(["I know it."]), subordinates=[Agent("leaf", "Eats")]
)
limited = replace(asking, limits=Limits(calls=2))
counted = Agent(
    "head",
    model=ScriptedModel(
        {
            "head": [Reply("", [delegate("leaf", "Eat")], usage=(1200, 30)), "Eaten."],
            "leaf": [Reply("Yum.", usage=(300, 4))],
        }
    ),
    subordinates=[Agent("leaf", "Eats")],
)
budgeted = replace(
    asking,
    model=ScriptedModel(
        {
            "head": [
                Reply(
                    "",
                    [
                        Call(
                            "call_subordinate",
                            {
                                "subordinate": "clerk",
                                "message": "Book",
                                "budget": {"tokens": 4000},
                            },
                        )
                    ],
                    usage=(900, 100),
                ),
                Reply("Booked.", usage=(500, 50)),
            ],
            "clerk": [
                Reply("", [Call("confirm", {"what": "Book it?"})], usage=(300, 10)),
                Reply("It is.", usage=(300, 10)),
            ],
        }
    ),
    permissions=Permissions(budget=Budget(tokens=20_000)),
)
wordless = Agent("head", model=ScriptedModel([""]))
escaping = Agent("head", "Answers", model=ScriptedModel(["red \\x1b[31malert"]))
offline = Agent("head", "Plans without a model", subordinates=[Agent("leaf", "Eats")])
failing = Agent("head", model=ScriptedModel([ConnectionError("the line is down\\nmore")]))


def leak() -> str:
    """Fail with a secret."""
    raise ValueError("refused\\npassword=hunter2")


leaking = Agent(
    "head",
    model=ScriptedModel(
        {
            "head": [delegate("clerk", "book"), OSError("api_key: hunter2 is wrong")],
            "clerk": [Call("leak"), "Not booked."],
        }
    ),
    subordinates=[Agent("clerk", "Books tables", tools=[leak])],
)
two = Agent(
    "head",
    model=ScriptedModel(
        {
            "head": [[delegate("one", "ask"), delegate("other", "ask")], "Both said."],
            "one": [Call("confirm", {"what": "First?"}), "One done."],
            "other": [Call("confirm", {"what": "Second?"}), "Other done."],
        }
    ),
    subordinates=[Agent("one", tools=[confirm]), Agent("other", tools=[confirm])],
)
unable = Agent(
    "head",
    model=ScriptedModel(
        {
            "head": [delegate("hotels", "a room"), "No room."],
            "hotels": [report("unable", "", reason="all booked")],
        }
    ),
    subordinates=[Agent("hotels", "Finds rooms")],
)
seeking = Agent(
    "head",
    model=ScriptedModel(
        {
            "head": [Call("call_subordinate", {"message": "a room"}), "Room 7."],
            "hotels": ["Room 7."],
        }
    ),
    subordinates=[
        Agent("hotels", "Finds rooms", capabilities={"room": 0.9}),
        Agent("flights", "Finds flights", capabilities={"flight": 0.9}),
    ],
)
class Backwards(LexicalMatcher):
    """A matcher that finds the agent that has the word spelt backwards."""

    def prepare(self, profiles):
        turned = [{name[::-1]: c for name, c in each.capabilities.items()} for each in profiles]
        known = [check_capabilities("any", each) for each in turned]
        return super().prepare(
            [replace(each, capabilities=own) for each, own in zip(profiles, known)]
        )


contrary = replace(
    seeking,
    subordinates=[
        Agent("hotels", "Finds rooms", capabilities={"moor": 0.9}),
        Agent("flights", "Finds flights", capabilities={"room": 0.9}),
    ],
    delegation=DelegationPolicy(matcher=Backwards()),
)
strict = replace(seeking, delegation=DelegationPolicy(threshold=0.95))
waiting = Agent(
    "head",
    model=ScriptedModel(
        {
            "head": [delegate("porter", "open"), "Open."],
            "porter": [Call("gate", {"name": "tool"}), "It is open."],
        }
    ),
    subordinates=[Agent("porter", "Opens", tools=[gate])],
)
saving = replace(waiting, permissions=Permissions(budget=Budget(calls=9)))
both = Agent(
    "head",
    model=ScriptedModel(
        {
            "head": [[delegate("clerk", "book"), delegate("porter", "open")], "Both done."],
            "clerk": [Call("confirm", {"what": "Book it?"}), "It is booked."],
            "porter": [Call("gate", {"name": "tool"}), "It is open."],
        }
    ),
    subordinates=[Agent("clerk", tools=[confirm]), Agent("porter", tools=[gate])],
)
hanging = Agent("head", model=ScriptedModel(hang))
number = 3


def made() -> Agent:
    return asks()


def unannotated():
    return asks()


def wants(city) -> Agent:
    return asks()


def breaks() -> Agent:
    raise RuntimeError("no such city")


async def later() -> Agent:
    await asyncio.sleep(0)
    return asks()


async def bound() -> Agent:
    """A team whose tool works only in the event loop in which the team was made."""
    line = asyncio.get_running_loop()

    async def call() -> str:
        """Call over the line."""
        Path("line").write_text("up" if asyncio.get_running_loop() is line else "down")
        return "Called."

    model = ScriptedModel(
        {
            "head": [delegate("between", "call"), "Done."],
            "between": [delegate("leaf", "call"), "Done."],
            "leaf": [Call("call"), "Done."],
        }
    )
    between = Agent("between", subordinates=[Agent("leaf", tools=[call])])
    return Agent("head", model=model, subordinates=[between])


async def breaks_later() -> Agent:
    await asyncio.sleep(0)
    raise RuntimeError("no such city")


async def exits_later() -> Agent:
    await asyncio.sleep(0)
    raise SystemExit("done")


async def cancelled() -> Agent:
    raise asyncio.CancelledError("no server answers")


async def number_later():
    await asyncio.sleep(0)
    return 3


async def wants_later(city) -> Agent:
    return asks()


async def yields_later():
    yield asks()


async def unannotated_later():
    return asks()
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the module ``trips`` in it and a database named."""
    (tmp_path / "trips.py").write_text(TRIPS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("ECHELONS_DB", "trips.sqlite")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("ECHELONS_DEBUG", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    sys.modules.pop("trips", None)


@pytest.fixture
def echelons(folder: Path) -> Callable[..., Result]:
    """Calls the command line in this process."""

    def call(*words: str, given: str | None = None) -> Result:
        return CliRunner().invoke(app, list(words), input=given)

    return call


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUTF8": "1", **more}


MAIN = ("-c", "from echelons.cli.app import main; main()")
Started = ForkedProcess | subprocess.Popen[str]


@pytest.fixture
def process(folder: Path, fork_server: ForkServer) -> Callable[..., Ended]:
    """Calls the command line in a process of its own, and waits for its end."""

    def call(*words: str, **more: str) -> Ended:
        return fork_server.run(*MAIN, *words, cwd=folder, env=environment(**more))

    return call


@pytest.fixture
def interpreter(folder: Path) -> Callable[..., Ended]:
    """Calls the command line in a new interpreter, and waits for its end."""

    def call(*words: str, **more: str) -> Ended:
        done = subprocess.run(
            [sys.executable, *MAIN, *words],
            cwd=folder,
            env=environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def terminal(folder: Path, fork_server: ForkServer) -> Callable[..., tuple[int, str]]:
    """Calls the command line on a terminal; gives its exit code and all that it wrote."""

    def call(*words: str, columns: int = 80) -> tuple[int, str]:
        ours, running = start_on_terminal(fork_server, words, folder, columns)
        shown = b"".join(iter(lambda: _read(ours), b"")).decode()
        os.close(ours)
        return running.wait(), shown

    return call


def start_on_terminal(
    server: ForkServer, words: Sequence[str], folder: Path, columns: int
) -> tuple[int, ForkedProcess]:
    """Return our end of a new terminal, and a command that runs on the other."""
    ours, theirs = pty.openpty()
    given = environment(TERM="xterm", COLUMNS=str(columns), LINES="30")
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = server.start(*MAIN, *words, cwd=folder, env=given, **streams)
    os.close(theirs)
    return ours, process


def start_controlled(words: Sequence[str], folder: Path) -> tuple[int, subprocess.Popen[str]]:
    """Return our end of a new terminal, and a new interpreter to which it sends Ctrl-C."""
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        _heed_interrupts()
        os.login_tty(theirs)

    process = subprocess.Popen(
        [sys.executable, *MAIN, *words],
        cwd=folder,
        env=environment(TERM="xterm", COLUMNS="80", LINES="30"),
        encoding="utf-8",
        preexec_fn=take_terminal,  # noqa: PLW1509  nothing else runs in the tests
    )
    os.close(theirs)
    return ours, process


class LiveTerminal:
    """A terminal of 80 columns with a running command, whose screen can be waited for."""

    def __init__(self, ours: int, process: Started) -> None:
        self._ours, self._process = ours, process
        self._shown = b""

    def wait_for(self, pattern: str, timeout: float = 300) -> None:
        """Read until the screen has shown a pattern, and forget what came before."""
        while not (found := re.search(pattern, self.text)):
            assert select.select([self._ours], [], [], timeout)[0], f"no {pattern!r}: {self.text}"
            read = _read(self._ours)
            assert read, f"ended without {pattern!r}: {self.text}"
            self._shown += read
        self._shown = self.text[found.end() :].encode()

    def type(self, text: str) -> None:
        """Type on the keyboard of the terminal."""
        os.write(self._ours, text.encode())

    def wait(self) -> tuple[int, str]:
        """Wait for the end, and return the exit code and what was written since the last look."""
        self._shown += b"".join(iter(lambda: _read(self._ours), b""))
        return self._process.wait(), self.text

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._shown.decode(errors="ignore"))


@pytest.fixture
def live(folder: Path, fork_server: ForkServer) -> Iterator[Callable[..., LiveTerminal]]:
    """Calls the command line on a terminal, and leaves it running.

    With `controlled`, Ctrl-C on the terminal interrupts it.
    """
    with ExitStack() as stack:

        def call(*words: str, controlled: bool = False) -> LiveTerminal:
            if controlled:
                running = LiveTerminal(*start_controlled(words, folder))
            else:
                running = LiveTerminal(*start_on_terminal(fork_server, words, folder, 80))
            return stack.enter_context(closing(running))

        yield call


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # what Linux says when the other end is closed
        return b""


@pytest.fixture
def pipes(folder: Path) -> Path:
    """The folder, with the pipes at which `waiting` and `hanging` wait: `begun` and `go`."""
    for name in ("begun", "go"):
        os.mkfifo(folder / name)
    return folder


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def start(folder: Path, fork_server: ForkServer) -> Iterator[Callable[..., Started]]:
    """Calls the command line in a process of its own, and leaves it running.

    With `new`, the process is a new interpreter.
    """
    started: list[Started] = []

    def call(*words: str, new: bool = False) -> Started:
        if new:
            process: Started = subprocess.Popen(
                [sys.executable, *MAIN, *words],
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                # A script's background job ignores Ctrl-C, and so would all that it starts.
                preexec_fn=_heed_interrupts,  # noqa: PLW1509  nothing else runs in the tests
            )
        else:
            process = fork_server.start(*MAIN, *words, cwd=folder, env=environment())
        started.append(process)
        return process

    yield call
    for each in started:
        each.kill()
        each.communicate()
