"""Hits of several providers become one list, each page once, the best first."""

from __future__ import annotations

import pytest

from echelons.teams.search.hits import (
    MOST_HITS,
    SearchHit,
    clean_text,
    format_hits,
    merge_hits,
    normalise_url,
)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a%20b?x=1&y=2",
        "http://www.example.org/a%20b/?y=2&x=1#part",
        "https://EXAMPLE.org:443/a b?utm_medium=m&x=1&y=2&fbclid=f",
    ],
)
def test_addresses_of_one_page_are_the_same(url: str) -> None:
    assert normalise_url(url) == "example.org/a b?x=1&y=2"


@pytest.mark.parametrize(
    "url",
    ["https://example.org/A", "https://example.org:8443/a", "sea/tides.md:3", "http://[::1", ""],
)
def test_addresses_of_other_pages_are_not(url: str) -> None:
    assert normalise_url(url) != normalise_url("https://example.org/a")


def test_a_page_that_two_have_found_comes_first_and_once() -> None:
    first = [
        SearchHit("A", "https://a.org", "", ("x",)),
        SearchHit("B", "https://b.org", "", ("x",)),
    ]
    second = [
        SearchHit("B!", "http://www.b.org/", "longer", ("y",)),
        SearchHit("C", "https://c.org", "", ("y",)),
    ]

    merged = merge_hits([first, second])
    assert [each.title for each in merged] == ["B", "A", "C"]
    assert merged[0] == SearchHit("B", "https://b.org", "longer", ("x", "y"))


def test_a_provider_cannot_raise_a_page_by_repeating_it() -> None:
    spam = [SearchHit("S", f"https://s.org/#{i}", "", ("x",)) for i in range(50)]
    hits = merge_hits([[SearchHit("A", "https://a.org", "", ("x",)), *spam]])

    assert [each.title for each in hits] == ["A", "S"]


def test_an_answer_has_at_most_ten_hits() -> None:
    hits = [SearchHit(str(i), f"https://a.org/{i}") for i in range(30)]

    assert [each.title for each in merge_hits([hits])] == [str(i) for i in range(MOST_HITS)]


def test_no_hits_are_no_text() -> None:
    assert merge_hits([]) == []
    assert format_hits([]) == ""


def test_a_text_of_a_provider_is_cleaned_and_cut() -> None:
    assert clean_text("<b>a</b>&lt;c&gt;\n\n d", 100) == "a<c> d"
    assert clean_text(None, 5) == ""
    assert clean_text("x" * 10, 5) == "xxxx…"
