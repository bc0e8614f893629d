"""A search takes a query and nothing else; its words say who is asked."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from echelons.teams.search.hits import (
    LONGEST_QUERY,
    QueryKind,
    SearchInput,
    classify_query,
    extract_keywords,
)


def test_a_search_has_one_field() -> None:
    schema = SearchInput.model_json_schema()

    assert list(schema["properties"]) == schema["required"] == ["query"]
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"query": ""},
        {"query": " \n\t "},
        {"query": None},
        {"query": 5},
        {"query": "x" * (LONGEST_QUERY + 1)},
        {"query": "x", "context": "y"},
    ],
)
def test_every_other_search_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SearchInput.model_validate(wrong)


def test_spaces_are_normalised() -> None:
    assert SearchInput(query="\u00a0 two\r\n\twords\u2003 ").query == "two words"


def test_a_context_follows_the_query() -> None:
    assert SearchInput.from_context("tides", " of the\nsea ").query == "tides of the sea"
    assert SearchInput.from_context("tides", "").query == "tides"


def test_a_context_that_is_too_long_is_cut_at_a_word() -> None:
    whole = SearchInput.from_context("tides", "word " * 500).query

    assert len(whole) <= LONGEST_QUERY
    assert whole.endswith(" word")


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("python library for circuit breakers", QueryKind.CODE),
        ("GitHub repositories about LangGraph", QueryKind.CODE),
        ("How do I write a Dockerfile?", QueryKind.CODE),
        ("arXiv preprints on quantum error correction", QueryKind.ACADEMIC),
        ("history of the printing press", QueryKind.ACADEMIC),
        ("studies of sleep", QueryKind.ACADEMIC),
        ("weather in Lisbon tomorrow", QueryKind.WEB),
        ("best pizza near me", QueryKind.WEB),
        ("", QueryKind.WEB),
        ("?!", QueryKind.WEB),
    ],
)
def test_the_words_of_a_query_decide_its_kind(query: str, kind: QueryKind) -> None:
    assert classify_query(query) is kind


def test_keywords_are_the_telling_words() -> None:
    assert extract_keywords("Find papers about tides and the moon") == ["tides", "moon"]
    assert extract_keywords("the best of all") == ["the", "best", "of", "all"]
    assert len(extract_keywords(" ".join(f"word{i}" for i in range(50)))) == 6
