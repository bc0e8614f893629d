"""The benchmarks run, the rivals do the same work, and a figure says what it says."""

from __future__ import annotations

import asyncio
import json
import os
import platform
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from echelons.tree.traversal import walk_tree
from tests.benchmarks import building, suite
from tests.benchmarks.handwritten import handwritten
from tests.benchmarks.measure import Cost, Say, Scale, interleave, median, megabytes
from tests.benchmarks.report import Row, Target, as_json, as_markdown, facts
from tests.benchmarks.rivals import ALL, FLOOR, OURS, arivals, rivals
from tests.benchmarks.trees import Role, chain, crowd, organisation, ours, pair

TINY = Scale(
    rounds=1,
    crowd=2,
    latency=0.001,
    turns=(1, 2, 3),
    affordable=2,
    continuations=2,
    compared=1,
    agents=4,
    population=5,
)


def ignore(what: str) -> None:
    """Hear what is being done."""


@pytest.mark.parametrize("name", suite.BENCHMARKS)
def test_a_benchmark_gives_positive_figures_and_says_what_it_does(name: str) -> None:
    said: list[str] = []
    rows = suite.BENCHMARKS[name](TINY, said.append)
    assert said
    assert any(row.target for row in rows)
    measured = [row.ours for row in rows if row.unit in ("CPU ms", "MB") and row.ours is not None]
    assert measured
    assert min(measured) > 0


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


def test_an_organisation_is_as_big_as_asked_for_on_both_sides() -> None:
    role = organisation(29, 6)
    assert len(_agents(role)) == 29
    assert len({place.path for place in walk_tree(ours(role))}) == 29
    # A level for each agent below the root, and a delegation graph for each superior.
    assert building.touch(building.build(role)) == 28 + 5
    assert set(handwritten(role).nodes) == {"reason", "delegate"}


def _agents(role: Role) -> list[str]:
    return [role.name, *(name for each in role.subordinates for name in _agents(each))]


def test_rivals_take_turns_at_being_first_and_warm_up_does_not_count() -> None:
    ran: list[tuple[str, int]] = []
    works = {name: partial(_note, ran, name) for name in ("a", "b")}
    costs = interleave(works, rounds=2, say=ignore, warm_up=1)
    assert ran == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert set(costs) == {"a", "b"}


def _note(ran: list[tuple[str, int]], name: str, number: int) -> None:
    ran.append((name, number))


def test_the_median_is_taken_of_each_clock_for_itself() -> None:
    assert median([Cost(1, 30), Cost(2, 20), Cost(3, 10)]) == Cost(2, 20)


@pytest.mark.parametrize(
    ("ours", "theirs", "target", "verdict"),
    [
        (5.0, 10.0, Target(0.6), "met"),
        (5.0, 10.0, Target(0.6, then=0.45), "met so far"),
        (7.0, 10.0, Target(0.6), "missed"),
        (7.0, 10.0, Target(7, of="value"), "met"),
        (7.0, None, Target(0.6), "not measured"),
        (None, 10.0, Target(7, of="value"), "not measured"),
        (7.0, 10.0, None, ""),
    ],
)
def test_a_figure_says_whether_its_target_is_met(
    ours: float | None, theirs: float | None, target: Target | None, verdict: str
) -> None:
    assert Row("work", "CPU ms", ours, "them", theirs, target).verdict == verdict


def test_figures_are_saved_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(scale: Scale, say: Say) -> list[Row]:
        return [Row(f"build {scale.agents} agents", "CPU ms", 5.0, "them", 10.0, Target(0.6))]

    monkeypatch.setitem(suite.BENCHMARKS, "building", measured)
    kept = tmp_path / "figures"
    suite.main(["--only", "building", "--json"], TINY, kept)
    assert not kept.exists()
    printed = json.loads(capsys.readouterr().out)
    suite.main(["--only", "building", "--rounds", "2", "--save"], TINY, kept)
    saved = json.loads((kept / "latest.json").read_text(encoding="utf-8"))
    assert (printed["rounds"], saved["rounds"]) == (1, 2)
    assert [row["work"] for row in saved["figures"]["building"]] == [
        row["work"] for row in printed["figures"]["building"]
    ]
    assert "build 4 agents" in (kept / "latest.md").read_text(encoding="utf-8")


def test_a_page_shows_each_figure_beside_its_target() -> None:
    figures = {"chain": [Row("work", "CPU ms", 5.0, "them", 10.0, Target(0.6))]}
    page = as_markdown(figures, 3, {"cores": "2"})
    assert "| work | CPU ms | 5 | 10 | 0.5 | them | ratio ≤ 0.6 | met |" in page
    assert "- cores 2" in page
    assert json.loads(as_json(figures, 3, {}))["figures"]["chain"][0]["ratio"] == 0.5


def test_the_facts_name_versions_and_no_machine() -> None:
    found = facts()
    assert found["langgraph"] == version("langgraph")
    assert platform.node() not in found.values()
    assert not any(os.sep in value for value in found.values())


@pytest.mark.parametrize("given", [["--rounds", "0"], ["--rounds", "-1"], ["--only", "nothing"]])
def test_an_option_that_means_nothing_is_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit):
        suite.main(given, TINY)


def test_a_rival_can_be_left_out() -> None:
    with rivals(chain(), [OURS, FLOOR]) as field:
        assert set(field) == {OURS, FLOOR}
