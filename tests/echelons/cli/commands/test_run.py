"""``echelons run``: a task to a team, for a log, for a pipe and for a program."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from typer.testing import Result

from echelons import Agent, SqliteCheckpointer
from echelons.identity.lineage import derive_root_thread_id
from echelons.testing import ScriptedModel

Call = Callable[..., Result]


def test_the_answer_goes_to_the_standard_output_and_all_else_to_the_standard_error(
    echelons: Call,
) -> None:
    done = echelons("run", "trips:plain", "Hello")

    assert done.exit_code == 0
    assert done.stdout == "Fine.\n"
    assert "head  begins: Hello" in done.stderr


def test_a_log_has_one_line_for_each_thing_that_an_agent_does(echelons: Call) -> None:
    done = echelons("run", "trips:unable", "A room, please")

    lines = [line.split("s  ", 1)[1] for line in done.stderr.splitlines() if "s  head" in line]
    assert lines == [
        "head  begins: A room, please",
        "head  asks hotels: a room",
        "head/hotels  begins: a room",
        "head/hotels  calls report(status='unable', result='', reason='all booked')",
        "head/hotels  got: reported",
        "head/hotels  is unable: all booked",
        "head  says: No room.",
    ]


def test_log_names_the_agent_that_a_call_without_name_reaches(echelons: Call) -> None:
    done = echelons("run", "trips:seeking", "A room, please")

    lines = [line.split("s  ", 1)[1] for line in done.stderr.splitlines() if "s  head" in line]
    assert lines[1:3] == ["head  asks hotels: a room", "head/hotels  begins: a room"]


def test_a_fresh_thread_gets_a_readable_name_and_the_command_that_goes_on_with_it(
    echelons: Call,
) -> None:
    done = echelons("run", "trips:plain", "Hello")

    (name,) = re.findall(r"^thread (head-\d{8}-\d{6}-[0-9a-f]{4})$", done.stderr, re.MULTILINE)
    again = f"go on with: echelons run trips:plain TASK --thread {name} --db trips.sqlite"
    assert again in done.stderr
    echelons("run", "trips:plain", "Again", "--thread", name)
    listed = [json.loads(line) for line in echelons("threads", "--json").stdout.splitlines()]
    assert [(each["thread"], each["turns"]) for each in listed] == [(name, 2)]


def test_two_runs_without_a_thread_never_share_one(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello")
    echelons("run", "trips:plain", "Hello")

    assert len(echelons("threads", "--json").stdout.splitlines()) == 2


def test_a_thread_given_by_its_id_keeps_its_name(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "rome")
    echelons("run", "trips:plain", "Again", "--thread", derive_root_thread_id("rome").upper())

    (listed,) = echelons("threads", "--json").stdout.splitlines()
    assert json.loads(listed)["thread"] == "rome"


def test_quiet_prints_the_answer_and_nothing_else(echelons: Call) -> None:
    done = echelons("run", "trips:plain", "Hello", "--quiet")

    assert (done.stdout, done.stderr) == ("Fine.\n", "")


def test_a_program_gets_an_event_a_line_and_the_result_last(echelons: Call) -> None:
    done = echelons("run", "trips:unable", "A room", "--json", "--thread", "rome")

    *events, result = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.stderr == ""
    assert {"kind": "delegation", "path": "head", "content": "call_subordinate"}.items() <= next(
        event for event in events if event["kind"] == "delegation"
    ).items()
    assert result["kind"] == "result"
    assert (result["thread"], result["thread_id"]) == ("rome", derive_root_thread_id("rome"))
    assert (result["finished"], result["text"], result["questions"]) == (True, "No room.", [])
    assert result["models"] == ["scripted"]
    assert result["exit_code"] == done.exit_code == 0


def test_a_run_that_ends_at_a_question_says_how_to_answer_it(echelons: Call) -> None:
    done = echelons("run", "trips:asking", "A table", "--thread", "rome")

    assert done.exit_code == 4
    (question,) = re.findall(r"echelons answer (\w+) VALUE --db trips.sqlite", done.stdout)
    assert done.stdout.startswith("head/clerk asks:\n  Book it?\n")
    assert echelons("answer", question, "yes", "--quiet").stdout == "Booked.\n"


def test_json_output_shows_open_questions(echelons: Call) -> None:
    done = echelons("run", "trips:asking", "A table", "--thread", "rome", "--json")

    result = json.loads(done.stdout.splitlines()[-1])
    (question,) = result["questions"]
    assert (question["path"], question["value"]) == ("head/clerk", {"question": "Book it?"})
    assert (result["finished"], result["exit_code"], done.exit_code) == (False, 4, 4)


def test_a_task_is_read_from_the_standard_input(echelons: Call) -> None:
    echelons("run", "trips:plain", "-", "--thread", "rome", given="To Rome\nand back\n")

    assert "task:\n  To Rome\n  and back\n" in echelons("show", "rome").stdout


@pytest.mark.parametrize("task", ["", "  \n"])
def test_an_empty_task_is_refused_before_anything_is_made(
    echelons: Call, folder: Path, task: str
) -> None:
    done = echelons("run", "trips:plain", task)

    assert done.exit_code == 3
    assert done.stderr == f"error: {task!r} is no task; give some words\n"
    assert not (folder / "trips.sqlite").exists()


def test_a_thread_that_waits_for_an_answer_takes_no_new_task(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    done = echelons("run", "trips:asking", "Another", "--thread", "rome")

    assert done.exit_code == 3
    assert "thread 'rome' waits for an answer" in done.stderr
    assert "echelons inbox" in done.stderr


def test_a_model_that_fails_ends_in_one_line_and_the_turn_can_go_on(echelons: Call) -> None:
    done = echelons("run", "trips:failing", "Hello", "--thread", "rome", "--quiet")

    assert done.exit_code == 5
    assert done.stderr == (
        "error: the turn of thread 'rome' stopped at ConnectionError: the line is down; all that "
        "was done before is stored, and `echelons resume` goes on from there\n"
    )
    again = echelons("resume", "--team", "trips:plain", "--quiet")
    assert (again.exit_code, again.stdout) == (0, "Fine.\n")


def test_the_offline_planner_is_called_by_its_name(echelons: Call) -> None:
    assert "by the offline planner" in echelons("run", "trips:offline", "Eat well").stderr
    assert "offline" not in echelons("run", "trips:plain", "Eat well").stderr


def test_another_model_is_used_where_one_is_named(echelons: Call) -> None:
    done = echelons("run", "trips:plain", "Eat well", "--model", "offline", "--json")

    assert json.loads(done.stdout.splitlines()[-1])["models"] == ["offline planner"]


def test_what_a_model_says_cannot_act_on_the_terminal(echelons: Call) -> None:
    done = echelons("run", "trips:escaping", "Hello")

    assert done.stdout == "red \\x1b[31malert\n"
    assert "\x1b" not in done.stderr


def test_without_a_named_database_one_is_made_in_the_data_folder_for_its_owner_only(
    echelons: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ECHELONS_DB")
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("HOME", str(folder))
    assert echelons("run", "trips:plain", "Hello").exit_code == 0

    (database,) = folder.rglob("echelons.sqlite")
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert "head-" in echelons("threads").stdout


def test_a_database_in_a_folder_that_is_not_there_is_refused(echelons: Call) -> None:
    done = echelons("run", "trips:plain", "Hello", "--db", "nowhere/trips.sqlite")

    assert done.exit_code == 3
    assert "there is no folder 'nowhere'; make the folder" in done.stderr


def test_the_id_of_a_thread_that_a_graph_has_begun_is_the_graphs_own(
    echelons: Call, folder: Path
) -> None:
    graph = Agent("head", model=ScriptedModel(["Fine."])).compile("trips.sqlite")
    graph.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "rome"}})
    cast(SqliteCheckpointer, graph.checkpointer).close()

    done = echelons("run", "trips:plain", "Hello", "--thread", "rome", "--json")

    assert json.loads(done.stdout.splitlines()[-1])["thread_id"] == "rome"
