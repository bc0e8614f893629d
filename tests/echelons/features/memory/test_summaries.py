"""Summaries in tiers, and the extract that stands in for a model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.errors import InvalidSetting, UnreadableRecord
from echelons.features.memory.prompt_memory import (
    PARAGRAPHS,
    TOPICS,
    SummaryRequest,
    extract_summary,
    plan_fold,
)
from echelons.memory import Memory
from echelons.models.summaries import Summaries
from echelons.plans import drive_plan


def fold(held: Summaries, turns: list[str], share: int = 1000) -> tuple[Summaries, list[str]]:
    """Fold turns, and return the summaries and the texts that were summarised."""
    asked: list[str] = []

    def summarize(request: SummaryRequest) -> str:
        asked.append(request.text)
        return f"paragraph {len(asked)}"[: request.limit]

    plan = plan_fold(held, turns, "id", len(turns), (), share)
    return drive_plan(plan, summarize), asked


def test_each_turn_is_a_topic_until_there_are_many() -> None:
    folded, asked = fold(Summaries(), [f"turn {n}" for n in range(TOPICS)])
    assert folded.topics == tuple(f"turn {n}" for n in range(TOPICS))
    assert asked == []


def test_many_topics_become_a_paragraph_and_many_paragraphs_one() -> None:
    turns = [f"turn {n}" for n in range((TOPICS + 1) * (PARAGRAPHS + 1))]
    folded, asked = fold(Summaries(), turns)
    assert folded.topics == ()
    assert folded.paragraphs == (f"paragraph {PARAGRAPHS + 2}",)
    assert asked[0].splitlines() == turns[: TOPICS + 1]
    assert asked[-1].splitlines() == [f"paragraph {n + 1}" for n in range(PARAGRAPHS + 1)]


def test_folding_in_pieces_is_folding_at_once() -> None:
    turns = [f"turn {n}" for n in range(30)]
    whole, _ = fold(Summaries(), turns)
    held = Summaries()
    for turn in turns:
        held, _ = fold(held, [turn])
    assert [*held.topics] == [*whole.topics]
    assert len(held.paragraphs) == len(whole.paragraphs)


@given(st.lists(st.text(max_size=400), max_size=80), st.integers(400, 9000))
def test_summaries_have_a_quarter_of_the_budget_at_most(turns: list[str], share: int) -> None:
    plan = plan_fold(Summaries(), turns, "id", len(turns), (), share)
    folded = drive_plan(plan, lambda request: extract_summary(request.text, request.limit))
    assert len(folded.render()) <= share + 20


@given(st.text(max_size=2000), st.integers(1, 500))
def test_an_extract_keeps_its_limit(text: str, limit: int) -> None:
    assert len(extract_summary(text, limit)) <= limit


def test_an_extract_has_the_task_and_the_answer() -> None:
    text = "Find a hotel. It may cost much.\nI look.\nI look again.\nThe Roma. It has a bar."
    assert extract_summary(text, 26) == "Find a hotel. The Roma."


def test_stored_summaries_come_back() -> None:
    held = Summaries("id", 3, ("a",), ("b",), ("c",))
    assert Summaries.load({**held.stored(), "of a newer version": 1}) == held


@pytest.mark.parametrize("stored", [None, 7, [], {"upto": 7}, {"topics": "abc", "count": "x"}])
def test_damaged_summaries_are_refused_by_name(stored: Any) -> None:
    with pytest.raises(UnreadableRecord, match="Summaries"):
        Summaries.load(stored)


@pytest.mark.parametrize(
    "values",
    [
        {"budget": 0},
        {"budget": 399},
        {"budget": True},
        {"budget": 1000, "recent": 0},
        {"budget": 1000, "summarizer": "magic"},
        {"budget": 1000, "size": 3},
    ],
)
def test_a_memory_with_bad_settings_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        Memory(**values)
