"""`echelons tree`: the agents of a thread, whole and in part, once and while others write."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from echelons import SqliteCheckpointer, ThreadStore
from tests.echelons.cli.conftest import LiveTerminal
from tests.fork_server import ForkedProcess

Call = Callable[..., Result]
AGE = re.compile(r" \[[0-9.]+ \w+\]")


@pytest.fixture
def asked(echelons: Call) -> Call:
    """The command line, after a run whose clerk asks."""
    assert echelons("run", "trips:asking", "go", "--thread", "t").exit_code == 4
    return echelons


def show(echelons: Call, *words: str) -> list[str]:
    """Return the lines of the tree, without the ages."""
    found = echelons("tree", *words)
    assert found.exit_code == 0, found.stderr
    assert AGE.search(found.stdout)
    return AGE.sub("", found.stdout).splitlines()


def test_the_tree_has_states_ages_and_questions(asked: Call) -> None:
    clerk = "clerk: waiting for the user: Book it?"
    assert show(asked) == ["head: waiting for head/clerk", f"└── {clerk}"]
    assert show(asked, "--thread", "t") == show(asked)
    assert show(asked, "--flat") == ["head: waiting for head/clerk", f"head/{clerk}"]
    assert show(asked, "--depth", "0") == ["head: waiting for head/clerk (and 1 below)"]
    assert show(asked, "--flat", "--depth", "0") == ["head: waiting for head/clerk"]


def test_an_agent_is_shown_below_its_breadcrumbs(asked: Call) -> None:
    clerk = "clerk: waiting for the user: Book it?"
    assert show(asked, "head/clerk") == ["head \u203a clerk", clerk]
    assert show(asked, "head", "--depth", "1") == show(asked)
    [_, found] = json.loads(asked("tree", "--json").stdout)["agents"]
    assert show(asked, found["id"]) == ["head \u203a clerk", clerk]


def test_programs_get_each_agent_with_all_that_is_known(asked: Call) -> None:
    told = json.loads(asked("tree", "--json").stdout)
    assert told["thread"] == "t"
    head, clerk = told["agents"]

    assert (clerk["path"], clerk["name"], clerk["level"]) == ("head/clerk", "clerk", 1)
    assert (clerk["superior_id"], head["subordinate_ids"]) == (head["id"], [clerk["id"]])
    assert (clerk["state"], clerk["waiting_for"]) == ("waiting", ["the user"])
    assert (clerk["question"], clerk["kind"], clerk["alias"]) == ("Book it?", "declared", "")
    assert clerk["since"] >= head["since"] > "2"
    [only] = json.loads(asked("tree", "head/clerk", "--json").stdout)["agents"]
    assert only == clerk


def test_answered_agents_are_done(asked: Call) -> None:
    assert asked("answer", "yes").exit_code == 0

    assert show(asked) == ["head: done", "└── clerk: done"]


def test_agents_that_were_made_are_shown_with_their_names_for_people(echelons: Call) -> None:
    assert echelons("run", "trips:growing", "go", "--thread", "t").exit_code == 4

    [head, scout] = show(echelons)
    [found] = re.findall(r"└── (scout-[0-9a-f]{8}) \((\w+)\): waiting for the user: ", scout)
    name, alias = found
    assert head == f"head: waiting for head/{name}"
    assert show(echelons, alias)[0] == f"head \u203a {name} ({alias})"
    [_, told] = json.loads(echelons("tree", "--json").stdout)["agents"]
    assert (told["kind"], told["role"], told["alias"]) == ("mortal", "scout", alias)
    assert f"head/{name} ({alias}) asks:" in echelons("inbox").stdout
    assert json.loads(echelons("inbox", "--json").stdout)["alias"] == alias
    assert f"└── {name} ({alias})  open" in echelons("trace").stdout
    [below] = json.loads(echelons("trace", "--json").stdout)["subordinates"]
    assert below["alias"] == alias


@pytest.mark.parametrize(
    ("decision", "made"), [(("approve",), 1), (("reject", "--message", "not now"), 0)]
)
def test_an_agent_is_made_once_it_has_been_approved(
    echelons: Call, decision: tuple[str, ...], made: int
) -> None:
    run = echelons("run", "trips:held", "go", "--thread", "t")
    assert (run.exit_code, "spawn_subordinate" in run.stdout) == (4, True)
    listed = echelons("inbox").stdout
    assert "head asks" in listed and "scout" in listed and "approve" in listed

    ended = echelons("answer", *decision)

    assert (ended.exit_code, ended.stdout) == (0, "Over.\n")
    told = json.loads(echelons("tree", "--json").stdout)["agents"]
    assert len([each for each in told if each["role"]]) == made


def test_states_are_coloured_on_a_terminal_and_nowhere_else(
    asked: Call, terminal: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, shown = terminal("tree")
    assert (code, "\x1b[33mwaiting\x1b[0m" in shown) == (0, True)
    assert "\x1b" not in asked("tree").stdout

    monkeypatch.setenv("NO_COLOR", "1")
    code, shown = terminal("tree")
    assert (code, "waiting for the user" in shown) == (0, True)
    assert "\x1b[33m" not in shown


def test_an_unknown_agent_or_thread_is_refused_by_name(asked: Call) -> None:
    unknown = asked("tree", "head/nobody")
    assert unknown.exit_code == 3
    assert "no agent 'head/nobody' in the tree; there are: head, head/clerk" in unknown.stderr
    assert "nobody" in asked("tree", "--thread", "nobody").stderr
    assert asked("tree", "--depth", "-1").exit_code == 2
    both = asked("tree", "--watch", "--json")
    assert (both.exit_code, "--watch is for people" in both.stderr) == (2, True)


def test_a_damaged_thread_is_an_error_of_its_name(asked: Call, folder: Path) -> None:
    with SqliteCheckpointer(folder / "trips.sqlite") as saver:
        [root] = ThreadStore(saver).roots()
        with saver.cursor() as cursor:
            cursor.execute("UPDATE checkpoints SET checkpoint = x'00' WHERE checkpoint_ns = ''")
    found = asked("tree", "--thread", root.id)

    assert found.exit_code not in (0, 2)
    assert "checkpoint" in found.stderr


def test_a_tree_that_is_watched_shows_what_another_process_writes(
    asked: Call, live: Callable[..., LiveTerminal], start: Callable[..., ForkedProcess]
) -> None:
    terminal = live("tree", "--watch", controlled=True)
    terminal.wait_for("clerk: waiting for the user: Book it")

    writer = start("answer", "yes")
    terminal.wait_for("clerk: done")
    writer.communicate()
    assert writer.returncode == 0
    terminal.type("\x03")
    code, _ = terminal.wait()

    assert code == 128 + signal.SIGINT
