"""``echelons attach``: a run in another process is followed to its end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

from tests.fork_server import ForkedProcess

Call = Callable[..., Result]
Started = ForkedProcess
Start = Callable[..., Started]


def wait_until(following: Started, words: str) -> None:
    """Read what it writes until a line has the words."""
    assert following.stderr is not None
    for line in following.stderr:
        if words in line:
            return
    raise AssertionError(f"it ended without {words!r}")


def test_a_run_elsewhere_is_followed_from_its_task_to_its_answer(start: Start, pipes: Path) -> None:
    running = start("run", "trips:waiting", "Open", "--thread", "rome")
    (pipes / "begun").read_text()
    following = start("attach")
    wait_until(following, "head/porter  calls gate(name='tool')")

    (pipes / "go").write_text("opened")
    stdout, stderr = following.communicate(timeout=300)

    assert (following.returncode, stdout) == (0, "Open.\n")
    assert "head/porter  got: opened" in stderr
    assert "head/porter  is fulfilled: It is open." in stderr
    assert "thread rome" in stderr
    assert running.communicate(timeout=300)[0] == "Open.\n"


def test_a_program_that_follows_gets_the_events_and_the_result(start: Start, pipes: Path) -> None:
    running = start("run", "trips:waiting", "Open", "--thread", "rome")
    (pipes / "begun").read_text()
    following = start("attach", "--thread", "rome", "--json")
    (pipes / "go").write_text("opened")
    running.communicate(timeout=300)

    *events, result = map(json.loads, following.communicate(timeout=300)[0].splitlines())

    told = [(event["path"], event["kind"]) for event in events]
    assert told == [
        ("head", "task"),
        ("head", "message"),
        ("head", "delegation"),
        ("head/porter", "task"),
        ("head/porter", "message"),
        ("head/porter", "tool_call"),
        ("head/porter", "tool_result"),
        ("head/porter", "message"),
        ("head/porter", "response"),
        ("head", "message"),
    ]
    assert (result["kind"], result["text"], result["status"]) == ("result", "Open.", "finished")


def test_ctrl_c_ends_the_following_and_not_the_run(start: Start, pipes: Path) -> None:
    running = start("run", "trips:waiting", "Open", "--thread", "rome")
    (pipes / "begun").read_text()
    following = start("attach")
    wait_until(following, "calls gate")

    following.send_signal(signal.SIGINT)
    _, stderr = following.communicate(timeout=300)
    (pipes / "go").write_text("opened")

    assert following.returncode == 130
    assert "thread rome goes on without you" in stderr
    assert running.communicate(timeout=300)[0] == "Open.\n"


def test_a_thread_that_asks_is_shown_with_its_question(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    shown = echelons("attach")

    assert shown.exit_code == 4
    assert "head/clerk asks:" in shown.stdout
    assert "head/clerk  asks you: " in shown.stderr


def test_what_has_ended_is_shown_if_it_is_named(echelons: Call) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")

    named, unnamed = echelons("attach", "--thread", "rome"), echelons("attach")

    assert (named.exit_code, named.stdout) == (0, "No room.\n")
    assert "head/hotels  is unable: all booked" in named.stderr
    assert unnamed.exit_code == 3
    assert "unfinished" in unnamed.stderr


def test_each_of_several_requests_is_shown_with_its_own_response(echelons: Call) -> None:
    echelons("run", "travel", "Plan a trip to Italy with great food", "--thread", "italy")

    told = [
        json.loads(line)
        for line in echelons("attach", "--thread", "italy", "--json").stdout.splitlines()
    ]

    ended = [each["path"] for each in told if each["kind"] == "response"]
    assert sorted(ended) == [
        "head/experiences",
        "head/experiences/restaurants",
        "head/flights",
        "head/hotels",
    ]


def test_tokens_of_the_offline_planner_do_not_count_as_if_they_cost(echelons: Call) -> None:
    run = echelons("run", "travel", "Find me a hotel in Rome", "--thread", "rome")
    followed = echelons("attach", "--thread", "rome")

    assert "thread rome" in followed.stderr
    assert "tokens" not in run.stderr + followed.stderr
