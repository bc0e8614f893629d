"""The benchmarks run, the rivals do the same work, and a count that has risen is an error."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sqlite3
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from benchmarks import suite, works
from benchmarks.counting import Counter, Counts
from benchmarks.measure import Cost, Scale, median, megabytes
from benchmarks.report import Figures, as_markdown, facts, list_excesses
from benchmarks.rivals import (
    ALL,
    AS_IT_COMES,
    FLOOR,
    KEPT,
    NEW,
    NOTHING,
    OURS,
    arivals,
    rivals,
)
from benchmarks.trees import Role, chain, crowd, pair
from benchmarks.works import Work, measure

TINY = Scale(rounds=1, counted=1, crowd=2, latency=0.001, turns=(1, 2, 3), continuations=(1, 2))
CHAIN = "chain, async"


def ignore(what: str) -> None:
    """Hear what is being done."""


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round is run before those that are measured."""
    monkeypatch.setattr(works, "WARM_UP", 0)


@pytest.mark.usefixtures("cold")
def test_each_work_is_counted_in_both_worlds() -> None:
    said: list[str] = []
    figures = suite.count_works(TINY, said.append)
    assert len(said) == 14
    assert set(figures) == {
        f"{work}, {world}"
        for work in (
            *("chain", "resume", "fan-out of 2", "turn 1", "turn 2", "turn 3"),
            *("continuation 1", "continuation 2", "middleware", "budget"),
        )
        for world in ("async", "sync")
    }
    assert min(row["calls"] for rows in figures.values() for row in rows.values()) > 0
    assert min(row["commits"] for rows in figures.values() for row in rows.values()) > 0
    for work in (CHAIN, "turn 2, sync"):
        assert figures[work].keys() == {OURS, NEW, KEPT, AS_IT_COMES, FLOOR}
    # A hand-written thread, whose file grows with the square of its turns, ends before.
    assert figures["turn 3, sync"].keys() == {OURS, FLOOR}
    assert figures["turn 3, sync"][OURS]["bytes"] >= figures["turn 1, sync"][OURS]["bytes"] > 0
    assert figures[CHAIN][OURS]["polls"] > figures["chain, sync"][OURS]["polls"] == 0


@pytest.mark.usefixtures("cold")
def test_each_work_is_timed_and_where_nothing_need_be_stored_without_storing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, _, crowded, *_ = works.list_works(TINY, timed=True)
    monkeypatch.setattr(suite, "list_works", lambda scale, timed: [first, crowded])
    figures = suite.time_works(TINY, ignore)
    assert min(row["cpu"] for rows in figures.values() for row in rows.values()) > 0
    for work in (CHAIN, "chain, sync", "fan-out of 2, async", "fan-out of 2, sync"):
        assert {name for name, row in figures[work].items() if "idle" in row} == {OURS, AS_IT_COMES}


def test_a_saver_that_does_nothing_leaves_nothing() -> None:
    with rivals(chain(), [OURS + NOTHING, AS_IT_COMES + NOTHING]) as field:
        for rival in field.values():
            assert rival.invoke("Go", "thread") == "done"
            assert not rival.database.exists()


@pytest.mark.parametrize("role", [chain(), crowd(3, 0.0), pair("an answer")], ids=lambda r: r.name)
def test_all_rivals_give_the_same_answer(role: Role) -> None:
    async def waiting() -> set[str]:
        async with arivals(role) as field:
            return {await rival.ainvoke("Go", "thread") for rival in field.values()}

    with rivals(role) as field:
        blocking = {rival.invoke("Go", "thread") for rival in field.values()}
        assert set(field) == set(ALL)
    assert blocking == asyncio.run(waiting()) == {role.model.answer}


def test_all_rivals_keep_what_was_said() -> None:
    with rivals(pair("A sentence that is looked for")) as field:
        for rival in field.values():
            rival.invoke("Go", "thread")
            assert megabytes(rival.database) > 0
            assert b"A sentence that is looked for" in rival.database.read_bytes()


def test_counts_are_of_all_threads_and_connections_and_of_nothing_outside() -> None:
    counter, samples = Counter(), list[Counts]()

    async def sleep() -> None:
        await asyncio.sleep(0)

    def store(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE notes (text)")
        for text in ("one", "two"):
            with connection:
                connection.execute("INSERT INTO notes VALUES (?)", (text,))

    with counter.watching():
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connect_again = sqlite3.connect
        with counter.count(samples):
            thread = threading.Thread(target=store, args=(connection,))
            thread.start()
            thread.join()
        with counter.count(samples):
            asyncio.run(sleep())
        with counter.count(samples):
            pass
    stored, slept, nothing = samples
    assert (stored.commits, stored.polls) == (2, 0)
    assert (slept.commits, slept.polls > 0) == (0, True)
    assert nothing.calls < 10 < stored.calls
    connection.close()
    assert sqlite3.connect is not connect_again


def test_counts_of_one_work_do_not_change_from_run_to_run() -> None:
    counter = Counter()
    with counter.watching():
        samples, _ = measure(Work("chain", chain(), [OURS], 3), "sync", counter.count)
    for kind in ("calls", "commits"):
        counts = [getattr(each, kind) for each in samples["chain", OURS]]
        assert max(counts) <= 1.01 * min(counts)


def test_rivals_take_turns_at_being_first_and_warm_up_does_not_count() -> None:
    work = Work("chain", chain(), [OURS, FLOOR], 2)
    with rivals(work.role, work.names) as field:
        orders = [work.rivals(field, run) for run in (1, 2)]
    assert orders[0] == orders[1][::-1]
    assert [work.label(run) for run in range(1, work.runs + 1)] == ["", "", "chain", "chain"]
    grown = Work("turn", chain(), [OURS], marks=(2, 10))
    assert [run for run in range(1, grown.runs + 1) if not grown.label(run)] == [3, 4, 5]


def test_the_median_is_taken_of_each_clock_for_itself() -> None:
    assert median([Cost(1, 30), Cost(2, 20), Cost(3, 10)]) == Cost(2, 20)


def figures(calls: float, name: str = OURS, **others: float) -> Figures:
    return {CHAIN: {name: {"calls": calls, **others}}}


@pytest.mark.parametrize(
    ("stored", "measured", "excess"),
    [
        (figures(1000), figures(1030), ""),
        (figures(1000), figures(1031), "1,031 calls; stored are 1,000, the limit is 1,030"),
        (figures(1000, NEW), figures(1031, NEW), "1,031 calls"),
        (figures(1000, AS_IT_COMES), figures(9000, AS_IT_COMES), ""),
        (figures(1, switches=100), figures(1, switches=225), ""),
        (figures(1, switches=100), figures(1, switches=226), "226 switches; stored are 100"),
        (figures(1, polls=100), figures(1, polls=114), "114 polls"),
        (figures(1, commits=22), figures(1, commits=23), "23 commits"),
        (figures(1), figures(1, bytes=9), ""),
        ({}, figures(1), ""),
    ],
)
def test_a_count_of_ours_may_be_three_percent_above_the_stored_one(
    stored: Figures, measured: Figures, excess: str
) -> None:
    lines = list_excesses(stored, measured)
    assert len(lines) == bool(excess)
    assert all(line.startswith(CHAIN) and excess in line for line in lines)


def store(folder: Path, found: dict[str, str], calls: float) -> None:
    folder.mkdir()
    record = {"counts": {"facts": found, "figures": figures(calls)}}
    (folder / "latest.json").write_text(json.dumps(record), encoding="utf-8")


def test_a_risen_count_ends_the_command_with_an_error_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "count_works", lambda scale, say: figures(1100))
    kept = tmp_path / "figures"
    store(kept, {**facts(), "pydantic": "1.0"}, 1000)
    with pytest.raises(SystemExit) as ended:
        suite.main(["--only", "counts"], TINY, kept)
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "chain, async, ours, compile(): 1,100 calls; stored are 1,000" in said
    assert "the limit is 1,030" in said
    assert f"pydantic is {version('pydantic')}, the counts were stored with 1.0" in said
    assert "make bench-counts ARGS=--save" in said
    suite.main(["--only", "counts", "--save"], TINY, kept)
    suite.main(["--only", "counts"], TINY, kept)


def test_counts_of_another_python_are_shown_but_are_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "count_works", lambda scale, say: figures(1100))
    store(tmp_path / "figures", {**facts(), "python": "3.0.7"}, 1000)
    suite.main(["--only", "counts"], TINY, tmp_path / "figures")
    said = capsys.readouterr().err
    assert "1,100 calls" in said
    assert "the counts were stored with 3.0, so this is no error" in said


@pytest.mark.parametrize(("load", "part"), [("0.3", "quiet"), ("2000.0", "loaded")])
def test_figures_are_saved_only_when_asked_for_and_by_the_load_that_was_found(
    load: str,
    part: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed: Any = {CHAIN: {OURS: {"cpu": 5.0, "wall": 6.0, "idle": 3.0}}}
    monkeypatch.setattr(suite, "time_works", lambda scale, say: timed)
    monkeypatch.setattr(suite, "facts", lambda: {**facts(), "load": load})
    kept = tmp_path / "figures"
    suite.main(["--only", "times", "--json"], TINY, kept)
    assert not kept.exists()
    assert set(json.loads(capsys.readouterr().out)) == {part}
    store(kept, facts(), 1000)
    suite.main(["--only", "times", "--save"], TINY, kept)
    stored = json.loads((kept / "latest.json").read_text(encoding="utf-8"))
    assert stored["counts"]["figures"] == figures(1000)
    assert stored[part]["facts"]["load"] == load
    page = (kept / "latest.md").read_text(encoding="utf-8")
    assert f"| work | who | {part} | {part}, idle |" in page
    assert f"| {CHAIN} | {OURS} | 5 | 3 |" in page


def test_a_page_shows_counts_and_times_and_whether_goals_are_met() -> None:
    counted = figures(30_500, switches=3, polls=4, commits=5)
    times: Figures = {"turn 300, sync": {OURS: {"cpu": 8}, FLOOR: {"cpu": 2}}}
    page = as_markdown(
        {
            "counts": {"facts": {"cores": "2"}, "figures": counted},
            "quiet": {"facts": {"cores": "4"}, "figures": times},
        }
    )
    assert f"| {CHAIN} | {OURS} | 30,500 | 3 | 4 | 5 |  |" in page
    assert "| turn 300, sync | the floor | 2 |  |" in page
    assert f"| calls: {CHAIN}, {OURS} | 30,500 | 30,500 | met |" in page
    assert "| processor time ÷ the floor's: turn 300, sync, quiet | 3.5 | 4 | missed |" in page
    assert "| cores | 2 | 4 |" in page


def test_the_facts_name_versions_and_no_machine() -> None:
    found = facts()
    assert found["langgraph"] == version("langgraph")
    assert platform.node() not in found.values()
    assert not any(os.sep in value for value in found.values())


@pytest.mark.parametrize("given", [["--rounds", "0"], ["--rounds", "-1"], ["--only", "nothing"]])
def test_an_option_that_means_nothing_is_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit):
        suite.main(given, TINY)
