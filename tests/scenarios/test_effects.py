"""What a tool does in the world happens at most once, or a human is asked.

Three levels, real processes and ``kill -9``: a tool with no, one or two questions dies after
any of the answers, or right behind its effect, and a human says what is to become of the call.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.fork_server import ForkServer
from tests.proof import sample
from tests.scenarios.drivers.effects import AFTER_EFFECT, OUTCOMES, POINTS, WAYS

TOLD = {
    "happened": "booked by hand",
    "not_happened": "Error: the call was cut short and did not happen; it was not tried again.",
}

Report = dict[str, Any]


@pytest.fixture(scope="module", params=["sync", "async"])
def deaths(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    fork_server: ForkServer,
) -> Any:
    """A report for each way in which a call can be cut short and decided."""
    place = str(tmp_path_factory.mktemp("deaths"))
    step = str(sample(4, 1))
    reports = fork_server.load("tests.scenarios.drivers.effects", place, request.param, step)
    assert len(reports) == sample(14, 54)
    # Each question, each point of death and each answer is among them.
    assert {(each["questions"], each["dies_at"]) for each in reports} == set(POINTS)
    assert {(each["says"], each["way"]) for each in reports} == set(product(OUTCOMES, WAYS))
    return reports


def given(report: Report) -> list[str]:
    """Return the answers that the tool's own questions were given."""
    return [f"answer to question {number + 1}?" for number in range(report["questions"])]


def test_an_effect_happens_as_often_as_a_human_let_it(deaths: list[Report]) -> None:
    for report in deaths:
        before = report["deaths"] if report["dies_at"] == AFTER_EFFECT else 0
        again = report["says"] == "run_again"
        assert len(report["effects"]) == before + again, report


def test_each_death_of_a_running_tool_is_asked_about_once(deaths: list[Report]) -> None:
    for report in deaths:
        assert report["asked"].count("outcome_unknown") == report["deaths"], report


def test_no_question_of_the_tool_is_asked_twice(deaths: list[Report]) -> None:
    for report in deaths:
        own = [each for each in report["asked"] if each != "outcome_unknown"]
        assert len(own) == len(set(own)), report


def test_what_a_human_says_of_a_call_is_never_taken_for_an_answer_to_the_tool(
    deaths: list[Report],
) -> None:
    for report in deaths:
        assert set(report["effects"]) <= {f"booked Rome: {given(report)}"}, report


def test_model_reads_human_answer_or_tool_result(
    deaths: list[Report],
) -> None:
    for report in deaths:
        told = TOLD.get(report["says"], f"booked {given(report)}")
        assert report["told"] == [told], report
        assert report["end"] == "head is done", report


def test_superior_reads_questions_and_answers_once(deaths: list[Report]) -> None:
    for report in deaths:
        asked = [
            "Did it happen?" if each == "outcome_unknown" else f'"{each}" The answer was: "answer'
            for each in report["asked"]
        ]
        told = report["superior"]
        assert len(told) == len(asked), report
        for line, question in zip(told, asked, strict=True):
            assert line.startswith("scout asked the user: "), report
            assert question in line, report


def test_no_entry_is_left_when_the_results_are_stored(deaths: list[Report]) -> None:
    assert [report["left"] for report in deaths] == [[]] * len(deaths)
