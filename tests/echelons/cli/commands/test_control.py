"""``echelons stop``, ``pause`` and ``takeover``: orders to a turn, whoever runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.fork_server import ForkedProcess

Call = Callable[..., Result]
Start = Callable[..., ForkedProcess]


def test_a_message_is_read_when_its_receiver_goes_on(echelons: Call) -> None:
    echelons("run", "trips:two", "Both", "--thread", "oslo")

    sent = echelons("message", "head/one", "Two seats.\n")
    told = echelons("message", "head", "-", "--thread", "oslo", "--json", given="And a table.")

    assert (sent.exit_code, sent.stdout) == (0, "sent head/one a message in thread oslo\n")
    assert "read when it goes on" in sent.stderr
    assert json.loads(told.stdout) == {"sent_to": "head", "thread": "oslo", "running": False}
    for code in (4, 0):
        (first, *_others) = echelons("inbox", "--json").stdout.splitlines()
        assert echelons("answer", json.loads(first)["id"], "yes").exit_code == code
    assert "message from the user: And a table." in echelons("trace").stdout
    assert "message from the user:\n  And a table." in echelons("show", "oslo").stdout
    assert (
        "head  reads from the user: And a table." in echelons("attach", "--thread", "oslo").stderr
    )


def test_intervention_for_idle_agent_is_kept(echelons: Call) -> None:
    echelons("run", "trips:two", "Both", "--thread", "oslo")

    sent = echelons("steer", "head/one", "Three seats.", "--json")

    assert json.loads(sent.stdout) == {"sent_to": "head/one", "thread": "oslo", "running": False}
    said = echelons("steer", "head/other", "None.").stdout
    assert said == "sent head/other an intervention in thread oslo\n"


def test_message_without_receiver_is_refused(echelons: Call) -> None:
    assert echelons("message", "head", "Hello").exit_code == 3
    echelons("run", "trips:plain", "Hello", "--thread", "rome")

    refused = echelons("message", "head/nobody", "Hello")

    assert refused.exit_code == 3
    assert "no agent 'head/nobody' in the tree" in refused.stderr
    assert echelons("message", "head", " ").exit_code == 3


def test_a_turn_that_asks_is_stopped_and_resume_brings_it_to_its_end(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    stopped = echelons("stop")

    assert (stopped.exit_code, stopped.stdout) == (0, "stopped head in thread rome\n")
    assert "go on with: echelons resume --thread rome" in stopped.stderr
    assert echelons("inbox").stdout == ""
    ended = echelons("resume")
    assert ended.exit_code == 0
    assert "Not finished (stopped: head was told to stop)." in ended.stdout
    assert "stopped (head was told to stop)" in ended.stderr
    assert echelons("run", "trips:plain", "Hello", "--thread", "rome").exit_code == 0


def test_agent_is_stopped_by_its_path_and_exit_code_shows_it(echelons: Call) -> None:
    echelons("run", "trips:two", "Both", "--thread", "oslo")

    stopped = echelons("stop", "head/one", "--json")

    assert json.loads(stopped.stdout) == {"stopped": "head/one", "thread": "oslo", "running": False}
    assert echelons("inbox").stdout.count(" asks:") == 1


def test_an_agent_is_paused_by_its_path(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    paused = echelons("pause", "head/clerk", "--thread", "rome")

    assert (paused.exit_code, paused.stdout) == (0, "paused head/clerk in thread rome\n")
    held = echelons("answer", "yes")
    assert held.exit_code == 5
    assert "paused; all that was done is stored. Go on with: echelons resume" in held.stderr
    assert echelons("resume").exit_code == 0


def test_exit_code_shows_paused_turn(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    echelons("pause")

    held = json.loads(echelons("answer", "yes", "--json").stdout.splitlines()[-1])

    assert (held["paused"], held["finished"], held["exit_code"]) == (True, False, 5)
    assert (held["status"], held["reason"]) == ("paused", "paused: head")


def test_the_pause_of_one_agent_is_lifted_and_that_of_another_stays(echelons: Call) -> None:
    echelons("run", "trips:two", "Both", "--thread", "oslo")
    for agent in ("head/one", "head/other"):
        echelons("pause", agent)
    for _ in range(2):
        (first, *_others) = echelons("inbox", "--json").stdout.splitlines()
        echelons("answer", json.loads(first)["id"], "yes")

    gone_on = echelons("resume", "head/one")

    assert gone_on.exit_code == 5
    assert "head/one  says: One done." in gone_on.stderr
    assert "Other done." not in gone_on.stderr
    assert "Other done." in echelons("resume").stderr


def test_a_pause_is_lifted_while_another_agent_asks(echelons: Call) -> None:
    echelons("run", "trips:two", "Both", "--thread", "oslo")
    echelons("pause", "head/one")
    asked = [json.loads(line) for line in echelons("inbox", "--json").stdout.splitlines()]
    [one] = [each["id"] for each in asked if each["path"] == "head/one"]
    echelons("answer", one, "yes")

    gone_on = echelons("resume", "head/one")

    assert gone_on.exit_code == 4
    assert "head/one  says: One done." in gone_on.stderr
    assert gone_on.stdout.startswith("head/other asks:")


def test_a_pause_that_was_never_given_cannot_be_lifted(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    refused = echelons("resume", "head/clerk", "--thread", "rome")

    assert refused.exit_code == 3
    assert "nothing is paused at 'head/clerk'" in refused.stderr


def test_an_agent_that_has_not_begun_is_stopped_too(echelons: Call) -> None:
    echelons("run", "trips:spared", "A table", "--thread", "rome")

    assert echelons("stop", "head/spare").stdout == "stopped head/spare in thread rome\n"
    assert echelons("pause", "head/spare", "--team", "trips:spared").exit_code == 0
    refused = echelons("stop", "head/nobody")
    assert "head, head/clerk, head/spare" in refused.stderr


def test_running_agent_is_stopped_though_the_team_is_gone(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:spared", "A table", "--thread", "rome")
    (folder / "trips.py").write_text("")
    sys.modules.pop("trips")

    assert echelons("stop", "head/clerk").exit_code == 0
    assert "head, head/clerk" in echelons("stop", "head/spare").stderr
    gone = echelons("stop", "head/spare", "--team", "trips:spared")
    assert gone.exit_code == 3
    assert "the module has no 'spared'" in gone.stderr


def test_an_agent_that_is_not_there_is_refused_with_those_that_are(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    refused = echelons("stop", "head/nobody")

    assert refused.exit_code == 3
    assert "'head/nobody'" in refused.stderr
    assert "head, head/clerk" in refused.stderr


def test_nothing_can_be_stopped_where_nothing_is_under_way(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "done")

    assert echelons("stop").exit_code == 3
    refused = echelons("pause", "--thread", "done")
    assert refused.exit_code == 3
    assert "no turn of thread 'done' is on its way" in refused.stderr


def test_of_several_threads_one_must_be_named(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    echelons("run", "trips:asking", "A table", "--thread", "oslo")

    refused = echelons("stop")

    assert refused.exit_code == 3
    assert "oslo" in refused.stderr and "rome" in refused.stderr


@pytest.fixture
def holder(start: Start, pipes: Path) -> ForkedProcess:
    """A process whose tool waits at the pipe `go`."""
    running = start("run", "trips:waiting", "Open", "--thread", "rome")
    (pipes / "begun").read_text()
    return running


def test_a_thread_is_taken_from_a_process_that_hangs_and_resumed(
    echelons: Call, pipes: Path, holder: ForkedProcess
) -> None:
    assert "echelons takeover" in echelons("resume").stderr

    taken = echelons("takeover", "rome", "--yes", "--json")

    found = json.loads(taken.stdout)
    assert (found["taken_over"], found["pid"], found["epoch"]) == ("rome", holder.pid, 1)
    assert found.keys() == {"taken_over", "thread_id", "epoch", "pid", "since", "host"}
    assert echelons("resume").exit_code == 4
    assert "Did it happen?" in echelons("inbox").stdout
    (pipes / "go").write_text("opened")
    stderr = holder.communicate(timeout=300)[1]
    assert (holder.returncode, "was taken over" in stderr) == (3, True)


def test_takeover_shows_holder_and_risk_before_it_asks(
    echelons: Call, live: Callable[..., Any], holder: ForkedProcess
) -> None:
    asked = live("takeover", "rome")
    asked.wait_for(rf"Process {holder.pid} on \S+ has held thread\s+rome")
    asked.wait_for("may still\\s+happen")
    asked.wait_for("y/N")
    asked.type("n\n")
    assert asked.wait()[0] == 1
    assert echelons("resume").exit_code == 7

    again = live("takeover", "rome")
    again.wait_for("y/N")
    again.type("y\n")
    code, shown = again.wait()

    assert code == 0
    assert f"took thread rome over from process {holder.pid}" in shown
    assert "echelons resume --thread rome" in shown


def test_without_a_terminal_a_thread_is_taken_only_with_yes(
    echelons: Call, holder: ForkedProcess
) -> None:
    refused = echelons("takeover", "rome", given="y\n")

    assert refused.exit_code == 2
    assert f"Process {holder.pid} on " in refused.stderr
    assert "--yes" in refused.stderr
    assert echelons("resume").exit_code == 7


def test_a_thread_that_is_free_or_unknown_is_not_taken(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "rome")

    free, unknown = (echelons("takeover", each, "--yes") for each in ("rome", "oslo"))

    assert (free.exit_code, "no run holds it" in free.stderr) == (3, True)
    assert (unknown.exit_code, "there is no thread 'oslo'" in unknown.stderr) == (3, True)


def test_an_agent_is_dismissed_for_good_and_its_question_withdrawn(echelons: Call) -> None:
    echelons("run", "trips:two", "Both", "--thread", "oslo")
    [one, _] = [json.loads(each) for each in echelons("inbox", "--json").stdout.splitlines()]

    unasked = echelons("dismiss", "head/one")
    dismissed = echelons("dismiss", "head/one", "--yes", "--by", "anna")

    assert (unasked.exit_code, dismissed.exit_code) == (2, 0)
    assert "Dismiss head/one in thread oslo, for good? the standard input is no" in unasked.stderr
    assert dismissed.stdout == (
        f"dismissed head/one in thread oslo\nwithdrawn: question {one['id']}\n"
    )
    assert "go on with: echelons resume --thread oslo" in dismissed.stderr
    for refused in (
        echelons("answer", one["id"], "yes"),
        echelons("steer", "head/one", "Two seats."),
    ):
        assert refused.exit_code == 3
        assert "'head/one': it was dismissed by 'anna' at" in refused.stderr.replace("\n", " ")
    told = json.loads(echelons("answer", one["id"], "yes", "--json").stderr)
    assert told["error"] == "AgentDismissed"
    assert "head/one: dismissed" in echelons("tree", "--flat").stdout
    again = json.loads(echelons("dismiss", "head/one", "--json").stdout)
    assert (again["new"], again["by"], again["agents"]) == (False, "anna", [])


def test_a_dismissed_root_closes_its_thread(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    told = json.loads(echelons("dismiss", "head", "--yes", "--json", "--by", "anna").stdout)
    ended = echelons("resume")

    assert told["agents"] == ["head", "head/clerk"]
    assert (told["dismissed"], told["heir"], told["running"]) == ("head", "the user", False)
    assert ended.exit_code == 0
    assert "dismissed (head was dismissed)" in ended.stderr
    refused = echelons("run", "trips:plain", "Hello", "--thread", "rome")
    assert refused.exit_code == 3
    assert "another thread" in refused.stderr


def test_missing_agent_is_not_dismissed_and_idle_one_is(echelons: Call) -> None:
    echelons("run", "trips:spared", "A table", "--thread", "rome")

    assert echelons("dismiss", "head/nobody", "--yes").exit_code == 3
    declared = echelons("dismiss", "head/spare", "--graceful", "--yes")

    assert declared.stdout == "dismissed head/spare gracefully in thread rome\n"
