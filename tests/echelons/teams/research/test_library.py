"""In a big folder few documents are asked, and the right ones."""

from pathlib import Path

import pytest

from echelons import Session
from echelons.agent import Agent
from echelons.offline.planner import OfflinePlanner
from echelons.offline.team import parse_team, split_task
from echelons.offline.words import TokenizedText
from echelons.teams.research import team
from echelons.teams.research.team import MOST_AGENTS, MOST_DOCUMENTS, DocumentLibrary

THINGS = "kettle ladder lantern saddle barrel anchor trowel bellows mirror chisel".split()  # noqa: SIM905
DEEP = "a/b/c/d/e/f/g/h"


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    root = tmp_path_factory.mktemp("big")

    def write(path: str, text: str) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")

    for number in range(300):
        thing, other = THINGS[number % 10], THINGS[number // 10 % 10]
        text = f"The {thing} of house {number} is older than its {other}.\n\n" * 8
        write(f"houses/h{number % 20}/house{number}.md", f"# House {number}\n\n{text}")
    write(
        "houses/h7/house300.md",
        "# House 300\n\nThe anchor is mended on every third Sunday.\n\nEach line is 30 m long.\n",
    )
    for number in range(MOST_DOCUMENTS):
        write(f"{DEEP}/moat{number}.md", "# The moat\n\nThe moat is filled with eels.\n")
        write(f"walls/{number}.md", "# Walls\n\nThe walls are built of granite.\n")
    for place in range(1, len(DEEP), 2):
        write(f"{DEEP[:place]}/other.md", "# Nothing\n\nAt all.\n")
    return team(root)


def asked(root: Agent, question: str, folder: Path) -> tuple[str, set[str]]:
    with Session(root, folder / "asked.sqlite") as session:
        run = session.send(question)
        agents = {event.path for event in run} - {root.name}
        return run.result().text, agents


def test_the_document_that_answers_is_found_among_many(big: Agent, tmp_path: Path) -> None:
    text, agents = asked(big, "How often is the anchor mended?", tmp_path)

    assert "> The anchor is mended on every third Sunday.\n" in text
    assert text.endswith("— houses/h7/house300.md:1")
    assert len(agents) == 3


def test_folders_on_the_way_count_as_asked(big: Agent, tmp_path: Path) -> None:
    text, agents = asked(big, "What is the moat filled with?", tmp_path)

    assert "is filled with eels." in text
    assert len(agents) == MOST_AGENTS


def test_several_questions_in_one_are_asked_of_the_documents_for_each(
    big: Agent, tmp_path: Path
) -> None:
    question = "What are the walls built of, and how often is the anchor mended?"
    text, agents = asked(big, question, tmp_path)

    assert "> The walls are built of granite." in text
    assert "> The anchor is mended on every third Sunday." in text
    assert len(agents) <= MOST_AGENTS


def test_no_agent_is_asked_what_no_document_says(big: Agent, tmp_path: Path) -> None:
    text, agents = asked(big, "Who painted the Mona Lisa?", tmp_path)

    assert "cannot help" in text
    assert "nearest" not in text, "no document has any of the words"
    assert not agents


def test_a_word_that_no_document_has_does_not_outweigh_those_that_answer(
    big: Agent, tmp_path: Path
) -> None:
    text, _ = asked(big, "Which caretaker mends the anchor?", tmp_path)

    assert "> The anchor is mended on every third Sunday." in text


@pytest.mark.parametrize("question", ["How deep did prisoners dig the moat?", "Deepest moat ever?"])
def test_a_refusal_shows_the_nearest_passages_and_quotes_none(
    big: Agent, tmp_path: Path, question: str
) -> None:
    text, agents = asked(big, question, tmp_path)

    assert "cannot help" in text
    assert "The nearest passages, which may not answer it:\n- " in text
    assert f'- {DEEP}/moat0.md:3, "The moat is filled with eels."' in text
    assert text.count("\n- ") == MOST_DOCUMENTS
    assert "\n> " not in text
    assert not agents


def test_words_of_the_tools_do_not_mislead_an_agent(big: Agent, tmp_path: Path) -> None:
    text, _ = asked(big, "How long is each line of house 300?", tmp_path)

    assert "> Each line is 30 m long." in text


def test_a_follow_up_leads_to_the_documents_of_the_question_before(
    big: Agent, tmp_path: Path
) -> None:
    asked(big, "How often is the anchor mended?", tmp_path)
    _, agents = asked(big, "And why so?", tmp_path)

    assert any(path.endswith("house300_md") for path in agents)


def test_only_subordinates_are_chosen_that_lead_to_a_document(big: Agent) -> None:
    assert isinstance(big.model, OfflinePlanner)
    library = big.model.sharing
    assert isinstance(library, DocumentLibrary)

    leads = library(
        parse_team("", ("houses", "a")), TokenizedText("How often is the anchor mended?")
    )
    assert [share.name for share in leads] == ["houses"]


def test_a_planner_without_a_library_goes_by_capabilities() -> None:
    assert OfflinePlanner().sharing is split_task
