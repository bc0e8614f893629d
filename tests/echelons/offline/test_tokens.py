"""Reading: words that know their place, in texts of any length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.offline.words import MAX_READ_CHARACTERS, TokenizedText, split_clauses
from echelons.text.stemming import extract_words


def test_words_know_where_they_stand() -> None:
    reading = TokenizedText("Anna\N{RIGHT SINGLE QUOTATION MARK}s flight_plan")
    assert [token.word for token in reading.tokens] == ["anna", "flight", "plan"]
    assert reading.excerpt[reading.tokens[0].start : reading.tokens[0].end] == "Anna's"


def test_of_a_long_text_the_beginning_and_the_end_are_read() -> None:
    said = [
        token.word for token in TokenizedText("first " + "x " * MAX_READ_CHARACTERS + "last").tokens
    ]
    assert said[0] == "first"
    assert said[-1] == "last"
    assert len(said) <= MAX_READ_CHARACTERS


def test_a_text_in_capitals_has_no_names() -> None:
    assert not any(token.is_capitalized for token in TokenizedText("FLIGHTS TO ROME").tokens)


@given(st.text(max_size=200))
def test_words_are_cut_as_everywhere(text: str) -> None:
    reading = TokenizedText(text)
    assert sorted(token.word for token in reading.tokens) == sorted(
        word
        for token in {(t.start, t.raw) for t in reading.tokens}
        for word in extract_words(token[1])
    )


@given(st.text())
def test_clauses_cover_all_words_once(text: str) -> None:
    tokens = TokenizedText(text).tokens
    assert [i for clause in split_clauses(tokens) for i in clause] == list(range(len(tokens)))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("one, two. three", 3),
        ("1,200 or 3.5 at 8:30", 1),
        ("flights and hotels", 1),
        ("flights and find hotels", 2),
        ("we have just booked", 1),
        ("flights but no hotels", 2),
        ("repair the bicycle and bake a cake", 2),
        ("I want to repair bicycles and bake cakes", 2),
        ("please mend it without new parts and paint the fence", 2),
        ("write a poem about wind and water the plants", 2),
        ("find a magic show and book a hotel", 2),
        ("a job search and book a hotel", 2),
        # Two verbs with one object.
        ("search and replace the word", 1),
        ("in the file search and replace the word", 1),
        ("can you come and see the house", 1),
        ("I would like to try and fix the bicycle", 1),
        ("drag and drop the file", 1),
        ("plan and book a trip", 1),
        # No second verb, or none that asks for anything.
        ("bread and butter", 1),
        ("buy bread and butter the day after", 1),
        ("museums and restaurants our kids like", 1),
        ("a museum and maybe a concert", 1),
        ("find Tom and Anna a hotel", 1),
        ("the bicycle is broken and needs a new wheel", 1),
        ("we have repaired the bicycle and baked a cake", 1),
        ("we have fixed the bicycle and bought a cake", 1),
        ("don't repair the bicycle and bake a cake", 1),
        ("", 0),
    ],
)
def test_a_clause_ends_where_another_statement_begins(text: str, count: int) -> None:
    assert len(split_clauses(TokenizedText(text).tokens)) == count
