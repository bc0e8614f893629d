"""``echelons prune``, ``doctor`` and ``backup``."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from echelons import SqliteCheckpointer
from echelons.checkpoints.ledger import build_key
from echelons.identity.lineage import derive_root_thread_id

Call = Callable[..., Result]


def rows() -> int:
    with sqlite3.connect("trips.sqlite") as connection:
        (count,) = connection.execute("SELECT count(*) FROM checkpoints").fetchone()
    connection.close()
    return int(count)


def talk(echelons: Call, thread: str = "rome", turns: int = 3) -> None:
    for _ in range(turns):
        echelons("run", "trips:unable", "A room", "--thread", thread)


def test_a_pruned_thread_is_smaller_and_goes_on(echelons: Call, folder: Path) -> None:
    talk(echelons)
    before, said = rows(), echelons("show", "rome").stdout

    done = echelons("prune", "--thread", "rome")

    assert done.exit_code == 0
    assert rows() < before
    assert done.stdout.startswith(f"rome: {before - rows()} checkpoints, ")
    assert done.stdout.endswith("0 events taken out\n")
    assert echelons("show", "rome").stdout == said
    assert echelons("run", "trips:unable", "A room", "--thread", "rome").exit_code == 0


def test_a_dry_run_only_says_what_would_go(echelons: Call, folder: Path) -> None:
    talk(echelons)
    before = rows()

    would = echelons("prune", "--turns", "1", "--events", "--dry-run", "--json")

    told = json.loads(would.stdout)
    assert rows() == before
    assert told["dry_run"] is True and told["thread"] == "rome"
    assert told["checkpoints"] > 0 and told["events"] > 0
    done = json.loads(echelons("prune", "--turns", "1", "--events", "--json").stdout)
    assert done == {**told, "dry_run": False}


def test_every_thread_is_pruned_if_that_is_said(echelons: Call, folder: Path) -> None:
    talk(echelons, "rome", 2)
    talk(echelons, "oslo", 2)

    assert echelons("prune").exit_code == 3
    young = echelons("prune", "--all", "--younger", "30d").stdout.splitlines()
    done = echelons("prune", "--all", "--latest", "1").stdout.splitlines()

    assert [line.split(":")[0] for line in done] == ["oslo", "rome"]
    assert all(": 0 checkpoints" in line for line in young)
    assert not any(": 0 checkpoints" in line for line in done)


@pytest.mark.parametrize(
    "words",
    [
        ["--younger", "soon"],
        ["--younger", "3"],
        ["--latest", "0"],
        ["--turns", "-1"],
        ["--latest", "1", "--turns", "1"],
    ],
)
def test_what_is_no_way_to_prune_is_refused(echelons: Call, folder: Path, words: list[str]) -> None:
    talk(echelons, turns=2)
    before = rows()

    assert echelons("prune", *words).exit_code == 2
    assert rows() == before


def test_a_deleted_thread_is_gone_and_the_others_stay(echelons: Call, folder: Path) -> None:
    talk(echelons, "rome", 1)
    talk(echelons, "oslo", 1)

    done = echelons("delete", "rome", "--yes")

    assert (done.exit_code, done.stdout) == (0, "deleted thread rome\n")
    left = [json.loads(line) for line in echelons("threads", "--json").stdout.splitlines()]
    assert [row["thread"] for row in left] == ["oslo"]
    assert echelons("show", "rome").exit_code == 3
    assert echelons("delete", "rome", "--yes").exit_code == 3
    assert json.loads(echelons("delete", "oslo", "--yes", "--json").stdout)["deleted"] == "oslo"


def test_a_thread_is_not_deleted_unless_that_is_confirmed(echelons: Call, folder: Path) -> None:
    talk(echelons, "rome", 1)

    done = echelons("delete", "rome", given="y\n")

    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert echelons("show", "rome").exit_code == 0


def test_a_thread_that_a_process_runs_is_not_deleted(echelons: Call, folder: Path) -> None:
    talk(echelons, "rome", 1)
    with SqliteCheckpointer("trips.sqlite") as saver:
        key = build_key(derive_root_thread_id("rome"))
        with saver.ledger.lease(key):
            done = echelons("delete", "rome", "--yes")

    assert done.exit_code == 7
    assert "rome" in done.stderr
    assert echelons("show", "rome").exit_code == 0


def test_a_sound_database_is_said_to_be_sound(echelons: Call, folder: Path) -> None:
    talk(echelons, turns=1)

    done = echelons("doctor")
    told = json.loads(echelons("doctor", "--json").stdout)

    assert done.exit_code == 0 and done.stdout.startswith("sound: ")
    assert told["sound"] is True and told["faults"] == [] and told["threads"] == 1


def test_faults_are_named_and_exit_code_shows_them(echelons: Call, folder: Path) -> None:
    talk(echelons, turns=1)
    with sqlite3.connect("trips.sqlite") as connection:
        connection.execute("UPDATE writes SET value = x'c1' WHERE rowid = 1")
    connection.close()

    done = echelons("doctor")
    told: dict[str, Any] = json.loads(echelons("doctor", "--json").stdout)

    assert done.exit_code == 6
    assert "write 0 of task" in done.stdout
    assert told["sound"] is False and told["faults"][0]["where"].startswith("write 0 of task")


def test_a_backup_is_a_database_like_the_first(echelons: Call, folder: Path) -> None:
    talk(echelons, turns=1)

    done = echelons("backup", "copy.sqlite")

    assert done.exit_code == 0 and "copy.sqlite" in done.stdout
    assert stat.S_IMODE(Path("copy.sqlite").stat().st_mode) == 0o600
    assert echelons("show", "rome", "--db", "copy.sqlite").stdout == echelons("show", "rome").stdout
    again = echelons("backup", "copy.sqlite", "--json")
    assert again.exit_code == 3 and json.loads(again.stderr)["error"] == "BackupExists"


@pytest.mark.parametrize("words", [["prune"], ["doctor"], ["backup", "copy.sqlite"]])
def test_a_database_that_is_not_there_is_refused_and_not_made(
    echelons: Call, folder: Path, words: list[str]
) -> None:
    assert echelons(*words).exit_code == 3
    assert not Path("trips.sqlite").exists() and not Path("copy.sqlite").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("run", "trips:plain", "Hello", "--db", "~nobody_here/x.sqlite"),
        ("threads", "--db", "~nobody_here/x.sqlite"),
        ("backup", "~nobody_here/x.sqlite"),
        ("run", "research", "Hello", "--docs", "~nobody_here"),
        ("draw", "research", "--docs", "~nobody_here"),
        ("resume", "--team", "research", "--docs", "~nobody_here", "--thread", "rome"),
    ],
)
def test_the_home_of_an_unknown_user_is_no_place(echelons: Call, words: tuple[str, ...]) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    refused = echelons(*words)

    assert refused.exit_code == 3
    assert "~nobody_here" in refused.stderr and "unexpected" not in refused.stderr


@pytest.mark.parametrize("words", [("doctor",), ("backup", "copy.sqlite"), ("breakers",)])
def test_a_command_for_the_whole_database_takes_no_thread(
    echelons: Call, words: tuple[str, ...]
) -> None:
    assert echelons(*words, "--thread", "rome").exit_code == 2


@pytest.mark.parametrize("words", [("prune", "--all"), ("show", "oslo"), ("draw", "trips:plain")])
def test_what_is_meant_is_not_named_twice(echelons: Call, words: tuple[str, ...]) -> None:
    for thread in ("rome", "oslo"):
        echelons("run", "trips:unable", "A room", "--thread", thread)
    before = rows()

    assert echelons(*words, "--thread", "rome").exit_code == 2
    assert rows() == before
    assert echelons(*words).exit_code == 0
