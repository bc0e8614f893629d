"""The fork server of the tests: what it forks is like an interpreter of its own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.fork_server import ForkServer

LOOK = """
import json, os, sys, threading
print(json.dumps([sys.argv, os.getcwd(), dict(os.environ), sys.stdin.read(), os.getppid()]))
print([each.name for each in threading.enumerate()], sys.modules["__main__"].LOOK, file=sys.stderr)
"""


def test_a_process_has_its_own_arguments_folder_environment_and_input(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    process = fork_server.start(
        "-c", f"LOOK = 3{LOOK}", "a", "\udce9", cwd=tmp_path, env={"A": "b"}, stdin=subprocess.PIPE
    )
    assert process.stdin
    process.stdin.write("said")
    stdout, stderr = process.communicate()

    seen = json.loads(stdout)
    assert seen[:-1] == [["-c", "a", "\udce9"], str(tmp_path), {"A": "b"}, "said"]
    assert seen[-1] not in (os.getpid(), process.pid)
    assert (process.returncode, stderr) == (0, "['MainThread'] 3\n")


def test_a_module_of_the_folder_is_run_as_the_main_one(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "asked.py").write_text("import sys\nprint(__name__, sys.argv[1:], sys.path[0])\n")

    ended = fork_server.run("-m", "asked", "x", cwd=tmp_path)

    assert ended == (0, f"__main__ ['x'] {tmp_path}\n", "")


@pytest.mark.parametrize(
    ("program", "code", "last"),
    [
        ("pass", 0, "farewell"),
        ("raise SystemExit(7)", 7, "farewell"),
        ("raise ValueError('wrong')", 1, "ValueError: wrong\nfarewell"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\nfarewell"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_a_process_ends_as_an_interpreter_does(
    fork_server: ForkServer, program: str, code: int, last: str
) -> None:
    farewell = "lambda: print('farewell', file=sys.stderr)"
    before = f"import atexit, os, signal, sys\natexit.register({farewell})\n"

    ended = fork_server.run("-c", before + program)

    assert ended.returncode == code
    assert ended.stderr.rstrip().endswith(last)


def test_a_process_can_be_stopped_woken_interrupted_and_killed(fork_server: ForkServer) -> None:
    # Not `signal.pause`, which does not see a signal that came just before it.
    waiting = (
        "import os, signal\n"
        "signals, noted = os.pipe()\n"
        "os.set_blocking(noted, False)\n"
        "signal.set_wakeup_fd(noted)\n"
        "print('on', flush=True)\n"
        "os.read(signals, 1)"
    )
    first, second = fork_server.start("-c", waiting), fork_server.start("-c", waiting)
    for each in (first, second):
        assert each.stdout
        each.stdout.readline()

    first.send_signal(signal.SIGSTOP)
    first.wait_until_stopped()
    assert first.poll() is None
    first.send_signal(signal.SIGCONT)
    first.send_signal(signal.SIGINT)
    second.kill()

    assert "KeyboardInterrupt" in first.communicate()[1]
    assert (first.returncode, second.wait()) == (-signal.SIGINT, -signal.SIGKILL)
    second.communicate()


def test_a_process_has_the_terminal_that_it_was_given(fork_server: ForkServer) -> None:
    ours, theirs = pty.openpty()
    program = "import sys; print(sys.stdout.isatty(), sys.stdout.line_buffering, input())"
    process = fork_server.start("-c", program, stdin=theirs, stdout=theirs, stderr=theirs)
    os.write(ours, b"typed\n")
    code = process.wait()
    os.close(theirs)

    assert (code, os.read(ours, 100)) == (0, b"typed\r\nTrue True typed\r\n")
    os.close(ours)


def test_the_server_and_its_processes_end_when_the_tests_are_killed(
    fork_server: ForkServer,
) -> None:
    waiting = "import signal; print('on', flush=True); signal.pause()"
    tests = fork_server.start(
        "-c",
        "from tests.fork_server import ForkServer\n"
        "server = ForkServer()\n"
        f"server.start('-c', {waiting!r}, stdout=1).wait()\n",
    )
    assert tests.stdout
    assert tests.stdout.readline() == "on\n"

    tests.kill()

    # The output ends when none of the three has it any more.
    assert tests.stdout.read() == ""
    tests.communicate()


def test_a_command_ends_as_its_fork(fork_server: ForkServer) -> None:
    code = "import sys; print(sys.argv, input()); print('wrong', file=sys.stderr); sys.exit(7)"
    command = fork_server.build_command("-c", code, "word")

    done = subprocess.run(command, input="line\n", capture_output=True, text=True, check=False)

    assert done.returncode == 7
    assert done.stdout == "['-c', 'word'] line\n"
    assert done.stderr == "wrong\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_fork_ends_with_its_command(fork_server: ForkServer, number: signal.Signals) -> None:
    code = "import time; print('begun', flush=True); time.sleep(600)"
    command = fork_server.build_command("-c", code)

    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        # The pipe is the fork's: it ends when the fork does.
        assert process.stdout.read() == b""

    assert process.returncode == -number
