"""``echelons stop`` and ``echelons pause``: orders to a turn, whoever runs it."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

Call = Callable[..., Result]


def test_a_turn_that_asks_is_stopped_and_resume_brings_it_to_its_end(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    stopped = echelons("stop")

    assert (stopped.exit_code, stopped.stdout) == (0, "stopped head in thread rome\n")
    assert "go on with: echelons resume --thread rome" in stopped.stderr
    assert echelons("inbox").stdout == ""
    ended = echelons("resume")
    assert ended.exit_code == 0
    assert "Not finished (stopped: head was told to stop)." in ended.stdout
    assert echelons("run", "trips:plain", "Hello", "--thread", "rome").exit_code == 0


def test_an_agent_is_stopped_by_its_path_and_a_program_is_told(echelons: Call) -> None:
    echelons("run", "trips:two", "Both", "--thread", "oslo")

    stopped = echelons("stop", "head/one", "--json")

    assert json.loads(stopped.stdout) == {"stopped": "head/one", "thread": "oslo", "running": False}
    assert echelons("inbox").stdout.count(" asks:") == 1


def test_an_agent_is_paused_by_its_path(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    paused = echelons("pause", "head/clerk", "--thread", "rome")

    assert (paused.exit_code, paused.stdout) == (0, "paused head/clerk in thread rome\n")
    assert echelons("answer", "yes").exit_code == 5
    assert echelons("resume").exit_code == 0


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
