"""Questions find the passage that answers them, with the line where it stands."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelons.teams.research import Survey
from echelons.teams.research.documents import parse_outline
from echelons.teams.research.search import (
    MOST_PASSAGES,
    PassageIndex,
    SearchQuestion,
    SearchResult,
    build_index,
    find_passages,
    parse_question,
)
from echelons.teams.research.survey import build_profile, count_documents
from echelons.text.stemming import extract_stems


def opened(survey: Survey, path: str) -> PassageIndex:
    return build_index(parse_outline(path, survey.surveyed[path].document.text))


def ranked(survey: Survey, question: str) -> list[tuple[str, SearchResult]]:
    wanted = parse_question(question, survey.vocabulary)
    found = [(path, find_passages(opened(survey, path), wanted)) for path in survey.surveyed]
    said = [(path, each) for path, each in found if each is not None]
    return sorted(said, key=lambda pair: -pair[1].confidence)


def quoted(found: SearchResult) -> str:
    return "\n".join(row.text for rows in found.passages for row in rows)


@pytest.mark.parametrize(
    ("question", "path", "answer"),
    [
        ("How long does the breaker stay open?", "engineering/circuit-breakers.md", "45 seconds"),
        (
            "What may pass a half-open breaker?",
            "engineering/circuit-breakers.md",
            "a single probe may pass",
        ),
        (
            "After how many failures does a breaker open?",
            "engineering/circuit-breakers.md",
            "five failures in a row",
        ),
        ("How often should a backup be restored?", "engineering/backups.txt", "every month"),
        ("How do I dump a PostgreSQL database?", "engineering/backups.txt", "pg_dump"),
        ("What is Nepal's offset from UTC?", "engineering/time-zones.rst", "45 minutes"),
        ("What does the smell of rotten eggs mean?", "garden/composting.md", "air is missing"),
        ("At which temperature do weed seeds die?", "garden/composting.md", "55 °C"),
        ("When is oxalic acid used against mites?", "garden/bees/varroa.rst", "in winter"),
        ("How are varroa mites counted?", "garden/bees/varroa.rst", "powdered sugar"),
        ("How often do I feed a sourdough starter?", "kitchen/sourdough.md", "once a week"),
        ("How much salt goes into the dough?", "kitchen/sourdough.md", "two percent"),
        ("What angle are Japanese knives ground to?", "kitchen/knives.txt", "15 degrees"),
        ("Which frequency is concert pitch?", "music/tuning.markdown", "440 Hz"),
        ("Tell me the standard tuning of a guitar", "music/tuning.markdown", "E A D G B E"),
        ("Where is the largest tidal range?", "sea/tides.md", "Bay of Fundy"),
        ("When do neap tides come?", "sea/tides.md", "quarters"),
        ("Which knot joins two ropes of different thickness?", "sea/knots.txt", "SHEET BEND"),
    ],
)
def test_the_best_answer_comes_from_the_right_place(
    surveyed: Survey, question: str, path: str, answer: str
) -> None:
    best, found = ranked(surveyed, question)[0]

    assert best == path
    assert answer in quoted(found)


@pytest.mark.parametrize(
    "question",
    [
        "What is the capital of France?",
        "Who painted the Mona Lisa?",
        "How do I configure nginx as a reverse proxy?",
        "Which year did the Berlin wall fall?",
    ],
)
def test_a_question_that_no_document_speaks_of_finds_nothing(
    surveyed: Survey, question: str
) -> None:
    assert ranked(surveyed, question) == []


def test_a_question_without_a_telling_word_asks_for_nothing(surveyed: Survey) -> None:
    assert parse_question("What is it, and why?", surveyed.vocabulary).shares == {}
    assert parse_question("?!", surveyed.vocabulary).shares == {}


def test_shares_of_a_question_add_up_and_rare_words_weigh_more(surveyed: Survey) -> None:
    shares = parse_question(
        "Do the hours of a tide make the mites leave?", surveyed.vocabulary
    ).shares

    assert sum(shares.values()) == pytest.approx(1)
    assert shares["mite"] > shares["hour"]
    assert "make" not in shares


def test_two_questions_at_once_bring_a_passage_for_each(surveyed: Survey) -> None:
    wanted = parse_question(
        "When do neap tides come, and what is the rule of twelfths?", surveyed.vocabulary
    )
    found = find_passages(opened(surveyed, "sea/tides.md"), wanted)

    assert found
    assert "quarters" in quoted(found)
    assert "twelfths of the range" in quoted(found)
    assert len(found.passages) <= MOST_PASSAGES


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("engineering/circuit-breakers.md", "a single probe may pass"),
        ("engineering/backups.txt", "every month"),
        ("sea/tides.md", "Bay of Fundy"),
    ],
)
def test_of_several_questions_each_document_answers_its_own(
    surveyed: Survey, path: str, answer: str
) -> None:
    wanted = parse_question(
        "What may pass a half-open breaker, how often is a backup restored, "
        "and where is the largest tidal range?",
        surveyed.vocabulary,
    )
    found = find_passages(opened(surveyed, path), wanted)

    assert found
    assert answer in quoted(found)
    assert find_passages(opened(surveyed, "kitchen/knives.txt"), wanted) is None


def test_words_close_together_count_more_than_scattered_ones() -> None:
    together = "The red kite flies.\n\nNothing else.\n\nNothing at all.\n"
    scattered = "The red door.\n\nA kite of paper.\n\nTime flies.\n"
    known = count_documents([build_profile("", [], together), build_profile("", [], scattered)])
    wanted = parse_question("Does the red kite fly?", known)
    close, far = (
        find_passages(build_index(parse_outline("a.md", text)), wanted)
        for text in (together, scattered)
    )

    assert close
    assert far
    assert close.confidence > far.confidence


def test_a_section_is_found_by_its_heading_and_quoted_with_it() -> None:
    text = "# Manual\n\nAbout it.\n\n## Returning goods\n\nWithin thirty days, by post.\n"
    found = find_passages(
        build_index(parse_outline("a.md", text)), SearchQuestion({"return": 0.5, "good": 0.5})
    )

    assert found
    assert quoted(found) == "## Returning goods\n\nWithin thirty days, by post."


def test_lists_tables_and_code_are_quoted_whole() -> None:
    birds = "- the kite\n- the swift\n- the owl\n"
    text = f"# T\n\n{birds}\nOther words.\n\n| bird | eats |\n|-|-|\n| heron | fish |\n"
    found_list = find_passages(
        build_index(parse_outline("a.md", text)), SearchQuestion({"swift": 1.0})
    )
    found_row = find_passages(
        build_index(parse_outline("a.md", text)), SearchQuestion({"heron": 1.0})
    )

    assert found_list
    assert birds.strip() in quoted(found_list)
    assert found_row
    assert "| bird | eats |" in quoted(found_row)


def test_a_line_of_a_megabyte_is_searched_and_quoted_in_part() -> None:
    text = "Start. " + "Filler goes on and on. " * 40_000 + "The heron eats fish. " + "More. " * 99
    found = find_passages(
        build_index(parse_outline("a.txt", text)), SearchQuestion({"heron": 0.5, "fish": 0.5})
    )

    assert found
    assert "The heron eats fish." in quoted(found)
    assert len(quoted(found)) < 5_000


word = st.sampled_from(["heron", "fish", "swift", "kite", "owl", "#", "-", "|", "```", "===", "1."])
line = st.lists(word, max_size=6).map(" ".join)


@settings(max_examples=60)
@given(st.lists(line, max_size=40).map("\n".join), st.lists(word, min_size=1, max_size=4))
def test_every_quoted_row_stands_where_the_citation_says(text: str, words: list[str]) -> None:
    wanted = dict.fromkeys(extract_stems(" ".join(words)), 0.5)
    found = (
        find_passages(build_index(parse_outline("a.md", text)), SearchQuestion(wanted))
        if wanted
        else None
    )
    lines = text.split("\n")
    for rows in found.passages if found else ():
        numbers = [row.line for row in rows]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert [row.text for row in rows] == [lines[number - 1] for number in numbers]
        assert set(extract_stems("\n".join(lines))) & wanted.keys()


def test_every_document_answers_with_its_own_headings(surveyed: Survey, corpus: Path) -> None:
    for path, reading in surveyed.surveyed.items():
        for _, heading in reading.headings:
            wanted = parse_question(heading, surveyed.vocabulary)
            found = find_passages(opened(surveyed, path), wanted)
            if not wanted.shares:  # "What it is not" says nothing by itself
                assert found is None
                continue
            assert found, f"{path} does not find {heading!r}"
            lines = re.split(r"\r?\n", (corpus / path).read_text(encoding="utf-8"))
            assert all(row.text == lines[row.line - 1] for row in found.passages[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How long does it take?", True),
        ("When does it open?", True),
        ("Which year was it built in?", True),
        ("What may pass?", False),
        ("Why does it open?", False),
    ],
)
def test_question_for_a_number_differs_from_others(
    surveyed: Survey, text: str, expected: bool
) -> None:
    assert parse_question(text, surveyed.vocabulary).wants_number is expected


def test_of_equal_passages_the_one_with_a_number_answers_how_long() -> None:
    text = "# T\n\n## A\n\nThe gate stays shut.\n\n## B\n\nThe gate shut for 20 minutes.\n"
    one = build_index(parse_outline("a.md", text))
    how_long = find_passages(one, SearchQuestion({"gate": 0.5, "shut": 0.5}, wants_number=True))
    why = find_passages(one, SearchQuestion({"gate": 0.5, "shut": 0.5}))

    assert how_long
    assert why
    assert how_long.passages[0][-1].text == "The gate shut for 20 minutes."
    assert why.passages[0][-1].text == "The gate stays shut."
