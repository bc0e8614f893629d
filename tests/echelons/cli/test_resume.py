"""``echelons resume``, and Ctrl-C: real processes that are stopped in the middle."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.fork_server import ForkedProcess

Call = Callable[..., Result]
Start = Callable[..., ForkedProcess]


def interrupt_when_begun(running: ForkedProcess, pipes: Path) -> None:
    """Press Ctrl-C as soon as the step is under way, and wait until that has been noticed."""
    (pipes / "begun").read_text()
    running.send_signal(signal.SIGINT)
    assert running.stderr is not None
    for line in running.stderr:
        if "stopping at the end of the current step" in line:
            return
    raise AssertionError("it ended without a word")


def test_ctrl_c_lets_the_step_end_and_the_turn_goes_on_from_there(
    start: Start, pipes: Path, echelons: Call
) -> None:
    running = start("run", "trips:waiting", "Open", "--thread", "rome", new=True)
    interrupt_when_begun(running, pipes)
    (pipes / "go").write_text("opened")
    stdout, stderr = running.communicate(timeout=300)

    assert (running.returncode, stdout) == (130, "")
    assert "Go on with: echelons resume --thread rome --db trips.sqlite" in stderr
    assert "Traceback" not in stderr
    assert '"unfinished"' in echelons("threads", "--json").stdout
    again = echelons("resume")
    assert (again.exit_code, again.stdout) == (0, "Open.\n")
    assert (pipes / "gate.log").read_text() == "tool\n", "the tool ran once"


def test_exit_code_shows_interrupted_run(start: Start, pipes: Path) -> None:
    running = start("run", "trips:waiting", "Open", "--thread", "rome", "--json")
    (pipes / "begun").read_text()
    running.send_signal(signal.SIGINT)
    (pipes / "go").write_text("opened")
    stdout, stderr = running.communicate(timeout=300)

    result = json.loads(stdout.splitlines()[-1])
    assert (result["finished"], result["interrupted"]) == (False, True)
    assert (result["exit_code"], running.returncode, stderr) == (130, 130, "")


@pytest.mark.parametrize("team", ["waiting", "hanging"])
def test_a_second_ctrl_c_ends_a_call_that_hangs(
    start: Start, pipes: Path, echelons: Call, team: str
) -> None:
    running = start("run", f"trips:{team}", "Open", "--thread", "rome")
    interrupt_when_begun(running, pipes)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=300)

    assert running.returncode == 130
    (listed,) = echelons("threads", "--json").stdout.splitlines()
    assert json.loads(listed)["state"] == "unfinished"
    assert echelons("trace", "--verify").exit_code == 0


def test_ctrl_c_before_the_turn_begins_leaves_nothing_behind(start: Start, pipes: Path) -> None:
    (pipes / "slowly.py").write_text(
        "from pathlib import Path\nPath('begun').write_text('x')\nPath('go').read_text()\n"
    )
    running = start("run", "slowly:head", "Open")
    (pipes / "begun").read_text()
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=300)

    assert (running.returncode, stdout) == (130, "")
    assert stderr == "interrupted\n"
    assert not (pipes / "trips.sqlite").exists()


def kill_when_begun(start: Start, pipes: Path) -> None:
    """Run a tool, and kill its process while it is at work."""
    running = start("run", "trips:waiting", "Open", "--thread", "rome")
    (pipes / "begun").read_text()
    running.kill()
    running.communicate(timeout=300)


def test_a_killed_run_is_resumed_by_another_process_which_asks_what_its_tool_did(
    start: Start, pipes: Path, echelons: Call
) -> None:
    kill_when_begun(start, pipes)

    resumed = echelons("resume")
    shown = echelons("inbox").stdout
    done = echelons("answer", "happened", "--result", "opened by hand")

    assert resumed.exit_code == 4
    assert "head/porter asks:\n  gate was started at " in shown
    assert "\n  gate(name='tool')\nAnswer it with one of:\n  echelons answer " in shown
    ways = [line.partition(" --db")[0] for line in shown.splitlines() if " answer " in line]
    assert [way.split(maxsplit=3)[3] for way in ways] == [
        "happened --result TEXT",
        "not_happened",
        "run_again",
    ]
    assert (done.exit_code, done.stdout) == (0, "Open.\n")
    assert (pipes / "gate.log").read_text() == "tool\n", "the tool ran once"


def test_a_tool_that_was_cut_short_runs_again_if_a_human_says_so(
    start: Start, pipes: Path, echelons: Call
) -> None:
    kill_when_begun(start, pipes)
    assert echelons("resume").exit_code == 4

    answered = start("answer", "run_again", "--quiet")
    (pipes / "begun").read_text()
    (pipes / "go").write_text("opened")

    assert answered.communicate(timeout=300)[0] == "Open.\n"
    assert (pipes / "gate.log").read_text() == "tool\ntool\n"


def test_the_only_unfinished_thread_needs_no_name(echelons: Call) -> None:
    echelons("run", "trips:failing", "Hello", "--thread", "broke")
    echelons("run", "trips:plain", "Hello", "--thread", "done")
    echelons("run", "trips:asking", "A table", "--thread", "asks")

    done = echelons("resume", "--team", "trips:plain")

    assert "thread broke" in done.stderr
    assert done.exit_code == 0


def test_of_several_unfinished_threads_one_is_to_be_named(echelons: Call) -> None:
    echelons("run", "trips:failing", "Hello", "--thread", "one")
    echelons("run", "trips:failing", "Hello", "--thread", "two")

    done = echelons("resume")

    assert done.exit_code == 3
    assert "several threads may be meant: two, one; name one with --thread" in done.stderr


def test_nothing_to_resume_is_said_with_the_way_out(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "done")

    assert "no thread in 'trips.sqlite' is unfinished" in echelons("resume").stderr
    named = echelons("resume", "--thread", "done")
    assert (named.exit_code, "nothing to resume" in named.stderr) == (3, True)


def test_what_waits_for_an_answer_is_not_resumed(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "asks")

    assert echelons("resume").exit_code == 3
    named = echelons("resume", "--thread", "asks")
    assert named.exit_code == 3
    assert "waits for an answer" in named.stderr


def test_module_that_only_a_database_names_is_not_imported(echelons: Call, folder: Path) -> None:
    asked = echelons("run", "trips:asking", "A table", "--thread", "rome")
    stranger = folder / "stranger.sqlite"
    stranger.write_bytes((folder / "trips.sqlite").read_bytes())
    question = re.findall(r"echelons answer (\w+)", asked.stdout)[0]

    for command in (["answer", question, "yes"], ["resume"]):
        refused = echelons(*command, "--thread", "rome", "--db", str(stranger), "--json")
        error = json.loads(refused.stderr.splitlines()[-1])
        assert (refused.exit_code, error["error"]) == (3, "TeamNotRun")

    named = ("--db", str(stranger), "--team", "trips:asking")
    assert echelons("answer", question, "yes", *named).exit_code == 0
    assert echelons("answer", question, "yes").exit_code == 0
