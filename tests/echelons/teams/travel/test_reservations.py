"""A table is reserved by a human: the run pauses, and says what the human said."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from echelons.teams.travel.lookups import reserve_table

Graph = CompiledStateGraph[Any, Any, Any, Any]
CONFIG: RunnableConfig = {"configurable": {"thread_id": "1"}}
WISH = {"restaurant": "Sobrino de Botín", "when": "Friday at 8 pm", "people": 4}


def paused(arguments: dict[str, Any]) -> tuple[Graph, dict[str, Any]]:
    """Run a graph of one tool node up to the question, and return both."""
    builder = StateGraph(MessagesState)
    builder.add_node("act", ToolNode([tool(parse_docstring=True)(reserve_table)]))
    builder.add_edge(START, "act")
    builder.add_edge("act", END)
    graph = builder.compile(checkpointer=InMemorySaver())
    call = {"name": "reserve_table", "args": arguments, "id": "1", "type": "tool_call"}
    message = AIMessage("", tool_calls=[call])
    state = graph.invoke({"messages": [message]}, CONFIG)
    (question,) = state["__interrupt__"]
    return graph, question.value


def answered(answer: Any) -> str:
    graph, _ = paused(WISH)
    last = graph.invoke(Command(resume=answer), CONFIG)["messages"][-1]
    assert isinstance(last, ToolMessage)
    assert last.status == "success"
    return str(last.content)


def test_the_question_says_what_to_reserve() -> None:
    _, question = paused(WISH)
    assert question == {
        "question": "Please reserve a table for 4 at Sobrino de Botín, Friday at 8 pm. "
        "Is it confirmed?",
        **WISH,
    }


def test_table_is_for_two_by_default() -> None:
    _, question = paused({"restaurant": "Rules"})
    assert question["question"] == "Please reserve a table for 2 at Rules. Is it confirmed?"
    assert (question["when"], question["people"]) == (None, 2)


@pytest.mark.parametrize("answer", ["yes", "Yes!", " OK ", "go ahead", "Confirmed.", True])
def test_a_yes_confirms(answer: Any) -> None:
    expected = "Confirmed by a human: a table for 4 at Sobrino de Botín, Friday at 8 pm."
    assert answered(answer) == expected


@pytest.mark.parametrize("answer", ["no", "No, thanks", "declined", "Don't", False])
def test_a_no_declines(answer: Any) -> None:
    assert answered(answer).startswith("Declined by a human: ")


@pytest.mark.parametrize(
    "answer", ["yes, but at nine", "ask for the terrace", "not on Friday", 7, {"time": "21:00"}]
)
def test_anything_else_is_passed_on_and_confirms_nothing(answer: Any) -> None:
    text = answered(answer)
    assert text.startswith("Not confirmed: ")
    assert text.endswith(str(answer))


@pytest.mark.parametrize("answer", ["", "  "])
def test_an_empty_answer_confirms_nothing(answer: Any) -> None:
    assert answered(answer).startswith("The human gave no answer")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"restaurant": " "}, "needs the name"),
        ({"restaurant": "Rules", "people": 0}, "not for 0"),
        ({"restaurant": "Rules", "people": -3}, "not for -3"),
    ],
)
def test_a_table_that_cannot_be_is_refused_before_anybody_is_asked(
    arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ToolException, match=said):
        reserve_table(**arguments)
