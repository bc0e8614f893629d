"""Turns that are submitted again, answers to threads at work, and answers that do not fit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import interrupt
from typer.testing import Result

from echelons import Agent, Session, SqliteCheckpointer
from echelons import Result as SessionResult
from echelons.checkpoints.ledger import build_key
from echelons.cli.team_loader import TeamSpec
from echelons.identity.lineage import derive_root_thread_id
from echelons.testing import Call as ToolCall
from echelons.testing import ScriptedModel, delegate

Call = Callable[..., Result]


def seats() -> str:
    """Ask for how many."""
    schema = {"type": "integer", "minimum": 1}
    return f"for {interrupt({'question': 'For how many?'}, response_schema=schema)}"


def told(done: Result) -> dict[str, object]:
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


# The same turn again


def test_a_turn_that_is_submitted_again_is_answered_from_memory(echelons: Call) -> None:
    words = ("run", "trips:plain", "Hello", "--thread", "rome", "--turn", "1")
    first, again = echelons(*words), echelons(*words)

    assert (first.exit_code, first.stdout) == (again.exit_code, again.stdout) == (0, "Fine.\n")
    assert "submitted before" not in first.stderr
    assert "the turn was submitted before, so nothing was run again" in again.stderr
    assert echelons(*words, "--quiet").stderr == ""
    assert [told(echelons(*words, "--json"))[each] for each in ("replayed", "finished")] == [
        True
    ] * 2


def test_a_turn_that_waits_says_for_which_answer_when_it_is_submitted_again(
    echelons: Call,
) -> None:
    words = ("run", "trips:asking", "A table", "--thread", "rome", "--turn", "1", "--json")
    first, again = echelons(*words), echelons(*words)

    assert (first.exit_code, again.exit_code) == (4, 4)
    assert told(first)["questions"] == told(again)["questions"] != []
    assert (told(first)["replayed"], told(again)["replayed"]) == (False, True)


def test_a_turn_of_another_task_or_of_no_thread_is_refused(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "rome", "--turn", "1")

    other = echelons("run", "trips:plain", "Bye", "--thread", "rome", "--turn", "1")
    nowhere = echelons("run", "trips:plain", "Hello", "--turn", "1")

    assert (other.exit_code, nowhere.exit_code) == (3, 2)
    assert "'1'" in other.stderr
    assert "--thread" in nowhere.stderr
    assert len(echelons("threads", "--json").stdout.splitlines()) == 1


def test_a_task_for_an_agent_below_is_answered_by_the_root(echelons: Call) -> None:
    words = ("run", "trips:unable", "A room", "--thread", "rome")

    done = echelons(*words, "--to", "head/hotels", "--json")
    unknown = echelons(*words, "--to", "hotels")

    assert (done.exit_code, unknown.exit_code) == (0, 3)
    assert told(done)["text"] == "No room."
    assert "head/hotels" in unknown.stderr


# How a turn stands


@pytest.mark.parametrize(
    ("team", "status", "reason", "remark", "code"),
    [
        ("plain", "finished", "", "", 0),
        (
            "unasked",
            "finished",
            "no subordinate was asked: head answered by itself",
            "finished (no subordinate was asked: head answered by itself)",
            0,
        ),
        (
            "wordless",
            "finished",
            "empty: it has answered nothing",
            "finished (empty: it has answered nothing)",
            0,
        ),
        (
            "asking",
            "asking",
            "question: an answer is needed by head/clerk",
            "asking (question: an answer is needed by head/clerk)",
            4,
        ),
    ],
)
def test_a_turn_shows_its_status_and_reason_also_when_it_is_submitted_again(
    echelons: Call, team: str, status: str, reason: str, remark: str, code: int
) -> None:
    words = ("run", f"trips:{team}", "A table", "--thread", "rome", "--turn", "1")

    for _ in range(2):
        done = echelons(*words)
        found = told(echelons(*words, "--json"))
        assert (done.exit_code, found["exit_code"]) == (code, code)
        assert (found["status"], found["reason"]) == (status, reason)
        assert found["finished"] == (status == "finished")
        assert bool(found["response"]) == (status == "finished")
        assert remark in done.stderr
    assert echelons(*words, "--quiet").stderr == ""


def test_a_turn_that_reaches_a_limit_is_limited_and_ends_well(echelons: Call) -> None:
    echelons("run", "trips:limited", "A table", "--thread", "rome")
    again = echelons("answer", "yes", "--json")

    found = told(again)
    assert (again.exit_code, found["exit_code"], found["finished"]) == (0, 0, False)
    assert (found["status"], found["reason"]) == ("limited", "limit: 2 of 2 model calls")
    assert found["response"]["status"] == "partial"  # type: ignore[index]  # an object of JSON


# A thread at work


def test_a_thread_at_work_takes_no_task_and_says_so_by_its_exit_code(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "rome")
    with SqliteCheckpointer("trips.sqlite") as saver:
        with saver.ledger.lease(build_key(derive_root_thread_id("rome"))):
            done = echelons("run", "trips:plain", "More", "--thread", "rome")
            json_done = echelons("run", "trips:plain", "More", "--thread", "rome", "--json")

    assert done.exit_code == 7
    assert "thread 'rome' is at work in process" in done.stderr
    assert json.loads(json_done.stderr)["error"] == "ThreadBusy"
    assert json.loads(json_done.stderr)["exit_code"] == 7


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_an_answer_to_a_thread_at_work_is_left_to_its_run(
    echelons: Call, folder: Path, how: tuple[str, ...]
) -> None:
    """The run asks in one branch, and is at work in the other until it is answered."""
    answered = threading.Event()
    results: list[SessionResult] = []

    def work() -> str:
        """Work until the other branch is answered."""
        assert answered.wait(120)
        return "worked"

    def ask() -> str:
        """Ask a human."""
        return f"they said {interrupt('Sure?')}"

    model = ScriptedModel(
        {
            "head": [[delegate("asker", "ask"), delegate("worker", "work")], "done"],
            "asker": [ToolCall("ask"), "thanks"],
            "worker": [ToolCall("work"), "worked"],
        }
    )
    below = [Agent("asker", tools=[ask]), Agent("worker", tools=[work])]
    agent = Agent("head", model=model, subordinates=below)
    notes = TeamSpec("trips:asking").to_metadata()
    with Session(agent, folder / "trips.sqlite", thread="rome", metadata=notes) as session:
        running = threading.Thread(target=lambda: results.append(session.send("plan").result()))
        running.start()
        while not (asked := echelons("inbox", "--json").stdout):
            assert running.is_alive()
        done = echelons("answer", json.loads(asked)["id"], "yes", *how)
        left = echelons("inbox").stdout
        answered.set()
        running.join(120)

    assert (done.exit_code, left) == (0, "")
    assert [each.text for each in results] == ["done"]
    if how:
        assert (told(done)["queued"], told(done)["finished"]) == (True, False)
        assert told(done)["status"] == "running"
    else:
        assert "a run is under way on the thread, and takes the answer" in done.stderr


def test_a_question_that_is_answered_elsewhere_leaves_the_live_view(
    pipes: Path, live: Callable[..., Any], echelons: Call
) -> None:
    running = live("run", "trips:both", "Go", "--thread", "rome")
    (pipes / "begun").read_text()
    running.wait_for(r"clerk +asking")
    running.wait_for(r"head/clerk asks:\s+Book it\?")
    asked = json.loads(echelons("inbox", "--json").stdout)
    echelons("answer", asked["id"], "yes")
    running.wait_for(r"clerk +running.* answered\s")
    (pipes / "go").write_text("opened")
    code, shown = running.wait()

    assert code == 0
    assert "Both done." in shown
    assert "asks:" not in shown


def test_the_live_view_shows_what_is_left_of_a_budget(
    pipes: Path, live: Callable[..., Any]
) -> None:
    running = live("run", "trips:saving", "Go", "--thread", "rome")
    (pipes / "begun").read_text()
    running.wait_for(r"7 of 9 model calls left")
    (pipes / "go").write_text("opened")
    code, shown = running.wait()

    assert code == 0
    assert "left" not in shown.rpartition("head ")[2]


def test_a_question_that_is_answered_elsewhere_is_not_offered_again_after_ctrl_c(
    pipes: Path, start: Callable[..., Any], echelons: Call
) -> None:
    running = start("run", "trips:both", "Go", "--thread", "rome")
    (pipes / "begun").read_text()
    next(line for line in running.stderr if "asks you" in line)
    echelons("answer", json.loads(echelons("inbox", "--json").stdout)["id"], "yes")
    next(line for line in running.stderr if "clerk  was answered by another process" in line)
    running.send_signal(signal.SIGINT)
    next(line for line in running.stderr if "stopping at the end" in line)
    (pipes / "go").write_text("opened")
    stdout, stderr = running.communicate(timeout=300)

    assert (running.returncode, stdout) == (130, "")
    assert "paused (the run ended after its current step" in stderr
    assert echelons("resume", "--quiet").stdout == "Both done.\n"


# Answers that do not fit


@pytest.fixture
def asked(folder: Path) -> str:
    """A question that takes a number, of a thread whose team is noted."""
    model = ScriptedModel([ToolCall("seats"), "thanks"])
    agent = Agent("head", model=model, tools=[seats])
    notes = TeamSpec("trips:seated").to_metadata()
    with (folder / "trips.py").open("a") as module:
        module.write(SEATED)
    with Session(agent, folder / "trips.sqlite", thread="rome", metadata=notes) as session:
        [question] = session.send("plan").result().questions
    return question.id


SEATED = '''
def seats() -> str:
    """Ask for how many."""
    return f"for {interrupt('How many?', response_schema={'type': 'integer', 'minimum': 1})}"


seated = Agent("head", model=ScriptedModel([Call("seats"), "Thanks."]), tools=[seats])
'''


def test_json_output_shows_kind_of_answer(echelons: Call, asked: str) -> None:
    [shown] = echelons("inbox", "--json").stdout.splitlines()

    assert json.loads(shown)["id"] == asked
    assert json.loads(shown)["schema"] == {"type": "integer", "minimum": 1}


def test_an_answer_of_the_wrong_kind_is_refused_with_the_reason_and_the_way_out(
    echelons: Call, asked: str
) -> None:
    text = echelons("answer", asked, "3")
    too_few = echelons("answer", asked, "0", "--json-value")
    again = echelons("inbox", "--json")
    right = echelons("answer", asked, "3", "--json-value", "--quiet")

    assert (text.exit_code, too_few.exit_code) == (3, 3)
    assert "'3' is not of type 'integer'" in text.stderr
    assert "add --json-value" in text.stderr
    assert "0 is less than the minimum of 1" in too_few.stderr
    assert "add --json-value" not in too_few.stderr
    assert json.loads(again.stdout)["id"] == asked
    assert (right.exit_code, right.stdout) == (0, "Thanks.\n")


def test_an_answer_that_is_written_down_is_not_asked_for_again(
    echelons: Call, folder: Path, asked: str
) -> None:
    from echelons.cli.team_loader import load_team

    with Session(load_team(TeamSpec("trips:seated")), "trips.sqlite", thread="rome") as session:
        run = session.answer(asked, 3)
        run.pause()
        run.result()

    assert echelons("inbox").stdout == ""
    assert json.loads(echelons("threads", "--json").stdout)["state"] == "unfinished"
    assert echelons("resume", "--quiet").stdout == "Thanks.\n"


# The command by another name


def test_the_command_line_is_a_module_too(folder: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "echelons", "run", "trips:plain", "Hello", "--quiet"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )

    assert shown.stdout == "Fine.\n"
