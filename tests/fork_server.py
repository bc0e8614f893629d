"""Processes that begin as forks of an interpreter which has imported Echelons already.

Importing is nearly all that a short process does. A `ForkServer` imports once what most of them
need, and does then what `subprocess` does with `python -m MODULE` and `python -c CODE`. Each is a
real process with its own arguments, folder, environment, streams and signals; it can be killed and
stopped, and ends as any interpreter does. But its interpreter began as the server's: a test of what
is imported, or of a variable that Python reads at first (`PYTHONHASHSEED`), starts one itself.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from types import ModuleType
from typing import IO, Any, NamedTuple, NoReturn, Self

from echelons import Agent
from echelons.testing import ScriptedModel

REPOSITORY = Path(__file__).parents[1]
PATIENCE = 300
"""Seconds after which a process is taken for one that hangs, and killed."""
HOURS = 10 * 3600
"""The same for one that may run a whole proof."""

NUMBER = struct.Struct("i")
"""What the server tells of a process: first its id, then its status whenever it stops or ends."""

STREAMS = ("stdin", "stdout", "stderr")
PRELOADED = (
    "mcp.server.fastmcp",
    "uvicorn",
    "echelons.checkpoints.threads.control",
    "echelons.cli.app",
    "echelons.cli.turns",
    "echelons.cli.board",
    "echelons.runtime.session",
    "echelons.runtime.turn_engine",
)


class Ended(NamedTuple):
    """How a process has ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


class ForkedProcess:
    """A process that a server has forked, with the names of `subprocess.Popen`.

    Attributes:
        pid: Its process id.
        returncode: Its exit code, or the negative number of a signal; `None` if not yet known.
        stdin: Its standard input, if that is a pipe; so are the outputs.
    """

    def __init__(self, changes: socket.socket, pipes: Mapping[str, IO[str]]) -> None:
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = map(pipes.get, ("stdin", "stdout", "stderr"))
        self._changes = changes
        self.pid = self._receive()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Return its exit code, or `None` while it lives."""
        while self.returncode is None and select.select([self._changes], [], [], 0)[0]:
            self._note_change()
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end, and return its exit code; kill it if that takes too many seconds."""
        with self._killed_after(timeout):
            while self.returncode is None:
                self._note_change()
        return self.returncode

    def wait_until_stopped(self) -> None:
        """Wait until a signal has stopped it."""
        assert self._note_change(), f"it ended with {self.returncode}"

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """Close its input, wait for its end, and return what is left of both outputs."""
        if self.stdin:
            with suppress(BrokenPipeError):
                self.stdin.close()
        left = {"stdout": "", "stderr": ""}

        def read(name: str, pipe: IO[str]) -> None:
            with pipe:
                left[name] = pipe.read()

        with self._killed_after(timeout):
            readers = [
                threading.Thread(target=read, args=(name, pipe))
                for name, pipe in (("stdout", self.stdout), ("stderr", self.stderr))
                if pipe is not None and not pipe.closed
            ]
            for each in readers:
                each.start()
            for each in readers:
                each.join()
        self.wait()
        return left["stdout"], left["stderr"]

    def _receive(self) -> int:
        received = self._changes.recv(NUMBER.size)
        assert received, "the fork server has ended"
        (number,) = NUMBER.unpack(received)
        return int(number)

    def _note_change(self) -> bool:
        """Wait until it has stopped or ended, and return whether it has stopped."""
        status = self._receive()
        if os.WIFSTOPPED(status):
            return True
        self.returncode = os.waitstatus_to_exitcode(status)
        self._changes.close()
        return False

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[None]:
        timer = threading.Timer(seconds, os.kill, (self.pid, signal.SIGKILL))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class ForkServer:
    """The server, from outside. It ends with this process, and all that it has forked with it."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair()
        self._address = f"echelons-{os.getpid()}-{token_hex(8)}"
        with theirs, socket.socket(socket.AF_UNIX) as clients:
            clients.bind(f"\0{self._address}")
            clients.listen()
            sockets = [theirs.fileno(), clients.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", *map(str, sockets)],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONUTF8": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=sockets,
                start_new_session=True,  # Ctrl-C is not for it
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.close()
        self._process.wait()

    def build_command(self, *arguments: str) -> list[str]:
        """Return a command that does what `python` does with such arguments, by a fork."""
        client = REPOSITORY / "tests" / "fork_client.py"
        return [sys.executable, "-I", "-S", str(client), self._address, *arguments]

    def start(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        **streams: int,
    ) -> ForkedProcess:
        """Begin what `python` does with such arguments: `-m`, `-c`, or the path of a script.

        Args:
            arguments: The arguments.
            cwd: Its folder; ours by default.
            env: Its whole environment; ours by default.
            streams: A file descriptor, `DEVNULL` or `PIPE` of `subprocess` as `stdin`, `stdout` and
                `stderr`. By default nothing can be read, and both outputs are pipes.
        """
        pipes: dict[str, IO[str]] = {}
        theirs: list[int] = []
        with ExitStack() as handed_over:
            for name in STREAMS:
                stream = streams.get(
                    name, subprocess.DEVNULL if name == "stdin" else subprocess.PIPE
                )
                if stream == subprocess.PIPE:
                    reader, writer = os.pipe()
                    ours, stream = (writer, reader) if name == "stdin" else (reader, writer)
                    pipes[name] = os.fdopen(ours, "w" if name == "stdin" else "r", encoding="utf-8")
                    handed_over.callback(os.close, stream)
                elif stream == subprocess.DEVNULL:
                    stream = os.open(os.devnull, os.O_RDWR)
                    handed_over.callback(os.close, stream)
                theirs.append(stream)
            changes, their_end = socket.socketpair()
            with their_end:
                socket.send_fds(self._requests, [b"."], [*theirs, their_end.fileno()])
        asked = [arguments, str(cwd or Path.cwd()), dict(os.environ if env is None else env)]
        changes.sendall(json.dumps(asked).encode())
        changes.shutdown(socket.SHUT_WR)
        return ForkedProcess(changes, pipes)

    def run(
        self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Ended:
        """Do what `python` does with such arguments, without any input, and wait for the end."""
        process = self.start(*arguments, cwd=cwd, env=env)
        stdout, stderr = process.communicate()
        return Ended(process.wait(), stdout, stderr)

    def load(self, module: str, *arguments: str) -> Any:
        """Run a module in the repository's folder, and return the JSON that it prints."""
        process = self.start("-m", module, *arguments, cwd=REPOSITORY)
        stdout, stderr = process.communicate(HOURS)
        assert process.returncode == 0, stderr
        return json.loads(stdout)


def serve(requests: socket.socket, clients: socket.socket) -> list[int]:
    """Fork for each request until the tests have ended; return, in the fork, its descriptors."""
    running: dict[int, socket.socket] = {}
    of_clients: dict[int, int] = {}
    children, noted = os.pipe()
    os.set_blocking(children, False)
    os.set_blocking(noted, False)
    signal.set_wakeup_fd(noted)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = wait_for_any(requests.fileno(), clients.fileno(), children, *of_clients)
        for descriptor in ready & {*of_clients}:  # its client was killed
            os.kill(of_clients.pop(descriptor), signal.SIGKILL)
        with suppress(BlockingIOError):
            os.read(children, 4096)
        report_changes(running)
        of_clients = {at: pid for at, pid in of_clients.items() if pid in running}
        is_client = clients.fileno() in ready
        if is_client:
            with clients.accept()[0] as client:
                _, descriptors, _, _ = socket.recv_fds(client, 1, 4)
        elif requests.fileno() in ready:
            _, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
            if not descriptors:
                end_all(running)
        else:
            continue
        if not descriptors:  # a client that was killed at once
            continue
        pid = os.fork()
        if pid == 0:
            leave_server([requests, clients, *running.values()], [children, noted])
            return descriptors
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        running[pid] = socket.socket(fileno=descriptors[3])
        with suppress(OSError):  # of a client that was killed at once
            running[pid].sendall(NUMBER.pack(pid))
        if is_client:
            of_clients[descriptors[3]] = pid


def leave_server(sockets: Iterable[socket.socket], pipe: Iterable[int]) -> None:
    """Let go of what is the server's, in a fork."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A script's background job ignores Ctrl-C, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for other in sockets:
        other.close()
    for end in pipe:
        os.close(end)


def end_all(running: Iterable[int]) -> NoReturn:
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    raise SystemExit


def wait_for_any(*descriptors: int) -> set[int]:
    """Wait until one can be read; of a socket that sends no more, until the other end is closed."""
    poll = select.poll()
    for place, descriptor in enumerate(descriptors):
        poll.register(descriptor, select.POLLIN if place < 3 else 0)
    return {descriptor for descriptor, _ in poll.poll()}


def report_changes(running: dict[int, socket.socket]) -> None:
    """Report which processes have ended or stopped."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return
        with suppress(OSError):  # if nobody waits for it
            running[pid].sendall(NUMBER.pack(status))
        if not os.WIFSTOPPED(status):
            running.pop(pid).close()


def become(descriptors: list[int]) -> None:
    """Make this process what was asked for."""
    with socket.socket(fileno=descriptors.pop()) as changes, changes.makefile() as asked:
        (kind, *words), folder, environment = json.load(asked)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number, name in enumerate(STREAMS):
        old, by_line = getattr(sys, name), name == "stderr" or os.isatty(number)
        mode, buffering = "w" if number else "r", 1 if by_line else -1
        new = os.fdopen(number, mode, buffering, old.encoding, old.errors, closefd=False)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if kind == "-m":
        sys.argv, sys.path[0] = [kind, *words[1:]], folder
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv, sys.path[0] = [kind, *words[1:]], ""
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(words[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv, sys.path[0] = [kind, *words], str(Path(kind).parent)
        runpy.run_path(kind, run_name="__main__")


def main(requests: int, clients: int) -> None:
    """Serve, and be a fork that was requested."""
    for module in PRELOADED:
        with suppress(ModuleNotFoundError):  # an extra that is not installed
            import_module(module)
    # What the first run imports and makes need not be made in each fork.
    Agent("head", model=ScriptedModel(["done"])).compile(":memory:").invoke(
        {"messages": [("user", "go")]}, {"configurable": {"thread_id": "1"}}
    )
    gc.freeze()
    become(serve(socket.socket(fileno=requests), socket.socket(fileno=clients)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
