"""The tools of an agent with one document: search it, quote it, refuse by name."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException

from echelons.teams.research import Survey
from echelons.teams.research.documents import Document
from echelons.teams.research.survey import count_documents
from echelons.teams.research.team import LONGEST_QUOTE, DocumentSearch, build_tools, open_index


@pytest.fixture
def both(surveyed: Survey) -> list[BaseTool]:
    document = surveyed.surveyed["engineering/circuit-breakers.md"].document
    return build_tools(DocumentSearch(document, surveyed.vocabulary))


def call(tool: BaseTool, **arguments: Any) -> ToolMessage:
    message = tool.invoke({"name": tool.name, "args": arguments, "id": "1", "type": "tool_call"})
    assert isinstance(message, ToolMessage)
    return message


def test_an_answer_is_a_quotation_with_its_place(both: list[BaseTool], corpus: Path) -> None:
    message = call(both[0], question="How long does the breaker stay open?")
    lines = (corpus / "engineering/circuit-breakers.md").read_text().split("\n")

    assert "> Our gateway keeps a breaker open for 45 seconds." in str(message.content)
    assert message.status == "success"
    assert 0 < message.artifact["confidence"] <= 1
    for citation in message.artifact["citations"]:
        assert citation["file"] == "engineering/circuit-breakers.md"
        cited = lines[citation["line"] - 1]
        place = f"— {citation['file']}:{citation['line']}"
        assert any(
            part.startswith(f"> {cited}") and part.endswith(place)
            for part in str(message.content).split("\n\n")
        )


def test_a_question_that_the_document_does_not_answer_is_refused(both: list[BaseTool]) -> None:
    with pytest.raises(ToolException, match=r"circuit-breakers.md says nothing about it"):
        both[0].invoke({"question": "Who painted the Mona Lisa?"})


def test_a_refusal_shows_the_nearest_passage(both: list[BaseTool]) -> None:
    nearest = r'nothing about it; the nearest passage is engineering/circuit-breakers.md:\d+, ".+"$'
    with pytest.raises(ToolException, match=nearest):
        both[0].invoke({"question": "Which gateway did Leonardo, Raphael and Titian paint?"})


@pytest.mark.parametrize("question", ["", "  ", "?!", "what is it", "\x00"])
def test_a_question_without_a_word_to_search_for_is_refused(
    both: list[BaseTool], question: str
) -> None:
    with pytest.raises(ToolException, match="no word to search for"):
        both[0].invoke({"question": question})


def test_lines_are_quoted_by_their_numbers(both: list[BaseTool]) -> None:
    message = call(both[1], first_line=1, last_line=3)

    assert str(message.content).startswith("> # Circuit breakers\n>\n> A service")
    assert str(message.content).endswith("— engineering/circuit-breakers.md:1")
    assert message.artifact == {
        "confidence": 1.0,
        "citations": [{"file": "engineering/circuit-breakers.md", "line": 1}],
    }


@pytest.mark.parametrize(("first", "last"), [(0, 3), (-5, 2), (3, 2), (1, 999), (999, 1000)])
def test_lines_out_of_range_are_refused_with_the_range(
    both: list[BaseTool], first: int, last: int
) -> None:
    with pytest.raises(ToolException, match=r"it has lines 1 to 36"):
        both[1].invoke({"first_line": first, "last_line": last})


def test_too_many_lines_at_once_are_refused_with_the_limit() -> None:
    _, quote = build_tools(DocumentSearch(Document("a.txt", "line\n" * 500), count_documents([])))

    assert str(call(quote, first_line=2, last_line=1 + LONGEST_QUOTE).content).count("> line") == 80
    with pytest.raises(ToolException, match=f"81 lines, the limit is {LONGEST_QUOTE}"):
        quote.invoke({"first_line": 2, "last_line": 2 + LONGEST_QUOTE})


def test_the_first_tool_takes_the_task_as_it_is(both: list[BaseTool]) -> None:
    assert [tool.name for tool in both] == ["search_document", "quote"]
    assert list(both[0].args) == ["question"]
    assert both[0].args["question"]["type"] == "string"


def test_a_document_is_taken_apart_at_its_first_question_only(surveyed: Survey) -> None:
    desk = DocumentSearch(surveyed.surveyed["sea/tides.md"].document, surveyed.vocabulary)
    open_index.cache_clear()

    desk.search_document("When do neap tides come?")
    desk.quote(1, 2)

    assert open_index.cache_info().misses == 1


@given(st.text(max_size=200))
def test_any_question_is_answered_or_refused(question: str) -> None:
    desk = DocumentSearch(
        Document("a.md", "# Kites\n\nA red kite eats mice.\n"), count_documents([])
    )
    try:
        content, artifact = desk.search_document(question)
    except ToolException as error:
        assert str(error)
    else:
        assert content.endswith("— a.md:1")
        assert 0 < artifact["confidence"] <= 1
