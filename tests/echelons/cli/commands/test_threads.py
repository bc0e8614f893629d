"""``echelons threads``, ``show``, ``trace`` and ``draw``: what there is, and what was said."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import Result

from echelons import Agent, Session, SqliteCheckpointer
from echelons.identity.lineage import derive_root_thread_id
from echelons.testing import ScriptedModel, delegate

Call = Callable[..., Result]
READING = [["inbox"], ["answer", "yes"], ["resume"], ["threads"], ["trace"], ["show"], ["draw"]]


def test_threads_are_listed_with_where_they_stand(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "done")
    echelons("run", "trips:asking", "A table", "--thread", "asks")
    echelons("run", "trips:failing", "Hello", "--thread", "broke")

    heads, *rows = [line.split() for line in echelons("threads").stdout.splitlines()]

    assert heads == ["THREAD", "AGENT", "STATE", "TURNS", "UPDATED", "ID"]
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("broke", "unfinished", "1"),
        ("asks", "asking", "1"),
        ("done", "finished", "1"),
    ]


@pytest.mark.parametrize("columns", [80, 120])
def test_ids_are_whole_however_wide_the_terminal_is(
    echelons: Call, terminal: Callable[..., tuple[int, str]], columns: int
) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "a-journey-to-the-end-of-the-world")
    rows = [json.loads(line) for line in echelons("threads", "--all", "--json").stdout.splitlines()]

    code, shown = terminal("threads", "--all", columns=columns)

    assert code == 0
    assert [row["thread_id"] in shown for row in rows] == [True, True]
    assert "a-journey-to-the-end-of-the-world" in shown
    assert "hotels" in re.sub(r"\s+", "", shown)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert max(map(len, plain.splitlines())) <= columns


def test_all_threads_are_those_of_every_agent(echelons: Call) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")

    rows = [json.loads(line) for line in echelons("threads", "--all", "--json").stdout.splitlines()]

    assert [(row["agent"], row["state"]) for row in rows] == [
        ("head", "finished"),
        ("head/hotels", "unable"),
    ]
    assert echelons("show", rows[1]["thread_id"]).stdout.startswith("head/hotels  thread ")


def test_a_thread_that_has_not_begun_is_shown_as_empty(echelons: Call) -> None:
    with SqliteCheckpointer("trips.sqlite") as saver:
        model = ScriptedModel({"head": [delegate("hotels", "a room"), "over"]})
        graph = Agent("head", model=model, subordinates=[Agent("hotels")]).compile(saver)
        given = {"messages": [("user", "go")]}
        graph.invoke(given, {"configurable": {"thread_id": "rome"}}, interrupt_before=["delegate"])

    rows = [json.loads(line) for line in echelons("threads", "--all", "--json").stdout.splitlines()]
    shown = echelons("show", rows[1]["thread_id"])

    assert shown.exit_code == 0
    assert shown.stdout.startswith("head/hotels  thread ")
    assert "not begun yet" in shown.stdout


@pytest.mark.parametrize("source", ["input", "loop"])
def test_a_damaged_thread_is_shown_as_damaged_and_the_others_as_before(
    echelons: Call, source: str
) -> None:
    for thread in ("rome", "oslo"):
        echelons("run", "trips:asking", "A table", "--thread", thread)
    with closing(sqlite3.connect("trips.sqlite")) as connection, connection:
        connection.execute(
            "UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = ?"
            " AND json_extract(metadata, '$.source') = ?",
            (derive_root_thread_id("rome"), source),
        )

    for more in ([], ["--all"]):
        listed = echelons("threads", "--json", *more)
        rows = [json.loads(line) for line in listed.stdout.splitlines()]
        states = {row["thread_id"]: row["state"] for row in rows}
        assert states[derive_root_thread_id("oslo")] == "asking"
        assert states[derive_root_thread_id("rome")] == "damaged"
        assert "is damaged: " in listed.stderr
    assert "damaged" in echelons("threads").stdout
    inbox = echelons("inbox")
    assert "thread oslo" in inbox.stdout
    assert "is damaged: " in inbox.stderr
    assert echelons("answer", "yes").exit_code == 0


def test_a_database_without_threads_says_how_to_begin_one(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:plain", "Hello", "--model", "offline", "--thread", "rome")
    with sqlite3.connect("trips.sqlite") as connection:
        connection.execute("DELETE FROM checkpoints")
    connection.close()

    assert "`echelons run` begins one" in echelons("threads").stderr


def test_a_conversation_names_the_thread_that_each_call_began(echelons: Call) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")

    shown = echelons("show", "rome").stdout

    (below,) = re.findall(r"asks hotels, on thread ([0-9a-f-]{36}):\n    a room\n", shown)
    assert shown.startswith(f"head  thread {derive_root_thread_id('rome')}\n\ntask:\n  A room\n")
    assert "result (error):" in shown
    assert shown.endswith("head:\n  No room.\n")
    assert "task:\n  a room\n" in echelons("show", below).stdout


def test_a_conversation_shows_the_context_of_each_request(echelons: Call, folder: Path) -> None:
    asked = delegate("hotels", "a room", context={"booking": 7, "guest": {"name": "Ann"}})
    model = ScriptedModel({"head": [asked, "done"], "hotels": ["booked"]})
    head = Agent("head", model=model, subordinates=[Agent("hotels")])
    with Session(head, "trips.sqlite", thread="rome") as session:
        session.send("A room").result()

    shown = echelons("show", "rome").stdout

    assert '    a room\n    (with booking: 7)\n    (with guest: {"name": "Ann"})\n' in shown


def test_a_program_gets_a_conversation_an_event_a_line(echelons: Call) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")

    events = [json.loads(line) for line in echelons("show", "rome", "--json").stdout.splitlines()]

    assert [event["kind"] for event in events] == ["message", "message", "delegation"] + [
        "message"
    ] * 2
    assert events[2]["data"]["arguments"]["subordinate"] == "hotels"
    assert events[2]["paired_with"] == events[3]["key"]
    assert events[3]["paired_with"] == events[2]["key"]


def test_a_trace_shows_every_agents_thread_and_that_all_links_hold(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    echelons("answer", "yes")

    done = echelons("trace", "--verify")

    assert done.exit_code == 0
    assert done.stdout.startswith(
        f"head  root  {derive_root_thread_id('rome')}\n└── clerk  fulfilled  "
    )
    assert "[confirm]" in done.stdout
    assert "1 link, all hold" in done.stdout


def test_a_broken_link_has_an_exit_code_of_its_own(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    echelons("answer", "yes")
    with sqlite3.connect("trips.sqlite") as connection:
        connection.execute("DELETE FROM checkpoints WHERE checkpoint_ns LIKE '%clerk%'")
    connection.close()

    done = echelons("trace", "--verify")

    assert done.exit_code == 6
    assert "1 link, 1 broken" in done.stdout
    checked = json.loads(echelons("trace", "--verify", "--json").stdout)
    assert [link["holds"] for link in checked["links"]] == [False]


def test_the_errors_of_a_thread_are_shown_with_their_ids_and_tracebacks(echelons: Call) -> None:
    failed = echelons("run", "trips:leaking", "Hello", "--thread", "leak", "--debug")
    assert failed.exit_code == 5
    assert "stopped at OSError: api_key: [redacted] is wrong" in failed.stderr

    shown = echelons("trace", "--errors")
    [tool, root] = json.loads(echelons("trace", "--errors", "--json").stdout)["failures"]

    assert (tool["path"], tool["tool"]) == ("head/clerk", "leak")
    assert (tool["error"], root["error"]) == (
        "ValueError: refused",
        "OSError: api_key: [redacted] is wrong",
    )
    assert (root["path"], root["tool"]) == ("head", "")
    assert root["request_id"] and "request none" not in shown.stdout + failed.stderr
    for each in (tool, root):
        assert f"failure {each['id']}  {each['path']}" in shown.stdout
        assert each["traceback"].splitlines()[-1] in shown.stdout
        assert f"thread {each['thread_id']}" in shown.stdout
        assert each["id"] in failed.stderr
    assert shown.stdout.endswith("\n2 failures\n")
    assert "hunter2" not in failed.output + shown.output
    assert "failures" not in json.loads(echelons("trace", "--json").stdout)


def test_a_thread_without_errors_has_none_to_show(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello")

    assert echelons("trace", "--errors").stdout.endswith("\n0 failures\n")
    assert json.loads(echelons("trace", "--errors", "--json").stdout)["failures"] == []


def test_a_program_gets_a_trace_as_one_tree(echelons: Call) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")

    trace = json.loads(echelons("trace", "--json").stdout)

    assert (trace["agent"], trace["status"]) == ("head", "root")
    (hotels,) = trace["subordinates"]
    assert hotels["requests"][0]["reason"] == "all booked"
    assert "links" not in trace


@pytest.mark.parametrize("command", ["trace", "show", "draw"])
def test_without_a_name_the_latest_thread_is_shown_and_named(echelons: Call, command: str) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "rome")
    only = echelons(command)
    echelons("run", "trips:asking", "Hello", "--thread", "oslo")
    latest = echelons(command)
    echelons("run", "trips:plain", "Hello", "--thread", "rome")

    assert (only.exit_code, only.stderr) == (0, "")
    assert latest.stdout == echelons(command, "--thread", "oslo").stdout
    assert latest.stderr == "thread oslo, the latest of 2; --thread names another\n"
    assert "thread rome, the latest of 2" in echelons(command).stderr
    assert echelons(command, "--json").stderr == ""


@pytest.mark.parametrize(
    "words", [["show", "nope"], ["trace", "--thread", "nope"], ["inbox", "--thread", "nope"],
              ["resume", "--thread", "nope"], ["answer", "yes", "--thread", "nope"],
              ["threads", "--thread", "nope"]],
)  # fmt: skip
def test_a_thread_that_does_not_exist_is_refused_by_its_name(
    echelons: Call, words: list[str]
) -> None:
    echelons("run", "trips:plain", "Hello")
    done = echelons(*words)

    assert done.exit_code == 3
    assert "there is no thread 'nope' in this database" in done.stderr


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_a_command_that_reads_makes_no_database(
    echelons: Call, folder: Path, words: list[str]
) -> None:
    done = echelons(*words)

    assert done.exit_code == 3
    assert "there is no database 'trips.sqlite'; `echelons run` makes one" in done.stderr
    assert not (folder / "trips.sqlite").exists()


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_a_file_that_is_no_database_is_refused(
    echelons: Call, folder: Path, words: list[str]
) -> None:
    (folder / "trips.sqlite").write_text("These are notes, and long enough to be looked at.")
    done = echelons(*words)

    assert done.exit_code == 3
    assert done.stderr.startswith("error: database 'trips.sqlite': file is not a database")
    assert len(done.stderr.splitlines()) == 1


def test_a_team_is_drawn_as_text_as_mermaid_and_as_data(echelons: Call) -> None:
    assert echelons("draw", "trips:asking").stdout == (
        "head: Plans trips\n└── clerk: Books tables\n"
    )
    assert "agent0 --> agent1" in echelons("draw", "trips:asking", "--mermaid").stdout
    drawn = json.loads(echelons("draw", "travel", "--json").stdout)
    names = [each["name"] for each in drawn["subordinates"]]
    assert names == ["flights", "hotels", "experiences"]


def test_the_team_of_a_thread_is_drawn_where_none_is_named(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    assert echelons("draw", "--thread", "rome").stdout == echelons("draw", "trips:asking").stdout
