"""The whole team at work, without a key: questions go down, quotations come up."""

from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from echelons.teams.research import team


def answer(folder: Path, question: str) -> str:
    graph = team(folder).compile(InMemorySaver())
    state = graph.invoke(
        {"messages": [("user", question)]}, {"configurable": {"thread_id": "asking"}}
    )
    return str(state["messages"][-1].content)


@pytest.mark.parametrize(
    ("question", "quotation", "place"),
    [
        (
            "How long does the breaker stay open?",
            "> Our gateway keeps a breaker open for 45 seconds.",
            "— engineering/circuit-breakers.md:16",
        ),
        (
            "When is oxalic acid used against mites?",
            "> therefore used in winter",
            "— garden/bees/varroa.rst:14",
        ),
        (
            "Tell me the standard tuning of a guitar",
            "tuning is E A D G B E.",
            "— music/tuning.markdown:14",
        ),
    ],
)
def test_an_answer_quotes_its_document_and_says_where(
    corpus: Path, question: str, quotation: str, place: str
) -> None:
    said = answer(corpus, question)

    assert quotation in said
    assert place in said


def test_answers_of_several_documents_are_merged_with_their_places(corpus: Path) -> None:
    said = answer(corpus, "What may pass a half-open breaker, and how often is a backup restored?")

    assert "a single probe may pass" in said
    assert "— engineering/circuit-breakers.md:6" in said
    assert "Restore one file every month" in said
    assert "— engineering/backups.txt:8" in said


def test_what_no_document_says_is_not_answered(corpus: Path) -> None:
    said = answer(corpus, "Who painted the Mona Lisa?")

    assert "cannot help" in said
    assert "> " not in said
