"""Graphs, Runnables and functions stand in a tree like agents, or are refused with a reason."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from typing_extensions import TypedDict

from echelons import Agent
from echelons.errors import EchelonsError
from echelons.tree.members import FunctionMember, GraphMember, Member, RunnableMember, adopt_member
from tests.error_codes import raises_code


class Other(TypedDict):
    """A state without messages."""

    topic: str


class Caller:
    """Can be called, and is no function."""

    def __call__(self, task: str) -> str:
        return task

    def method(self, task: str) -> str:
        """Answer."""
        return task


def answer(task: str) -> str:
    """Answer the task.

    In some detail.
    """
    return task


def with_a_default(task: str, times: int = 2, *more: str, loud: bool = False, **rest: str) -> str:
    return task * times


async def wait(task: str) -> str:
    return task


def nothing() -> str:
    return ""


def two(task: str, other: str) -> str:
    return task + other


def by_keyword(*, task: str) -> str:
    return task


def graph(state: Any = MessagesState, name: str = "foreign", **kwargs: Any) -> Any:
    """Return a small compiled LangGraph graph."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(state)
    builder.add_node("only", lambda state: {})
    builder.add_edge(START, "only")
    builder.add_edge("only", END)
    return builder.compile(name=name, **kwargs)


def kept(thing: Any) -> Member:
    """Return the one subordinate of an agent that is given ``thing``."""
    [member] = Agent("head", subordinates=[thing]).subordinates
    return member


def refusal(thing: Any) -> EchelonsError:
    """Return the error by which ``thing`` is refused."""
    with raises_code("invalid_subordinate") as refused:
        Agent("head", subordinates=[Agent("eat"), thing])
    assert refused.value.superior == "head"
    assert refused.value.why in str(refused.value)
    assert "'head'" in str(refused.value)
    return refused.value


# What is taken


def test_an_agent_stays_itself() -> None:
    agent = Agent("eat")

    assert kept(agent) is agent


@pytest.mark.parametrize("function", [answer, with_a_default, wait, Caller().method])
def test_a_function_with_one_required_parameter_is_a_subordinate(function: Any) -> None:
    member = kept(function)

    assert isinstance(member, FunctionMember)
    assert member.function == function
    assert member.name == function.__name__


def test_a_function_is_described_by_the_first_paragraph_of_its_docstring() -> None:
    assert kept(answer).description == "Answer the task."
    assert kept(wait).description == ""


def test_a_paragraph_of_several_lines_becomes_one() -> None:
    def long(task: str) -> str:
        """Answer in
        two lines.

        More.
        """
        return task

    assert kept(long).description == "Answer in two lines."


def test_a_runnable_is_a_subordinate_under_its_own_name() -> None:
    runnable = RunnableLambda(answer, name="oracle")
    member = kept(runnable)

    assert isinstance(member, RunnableMember)
    assert (member.name, member.runnable) == ("oracle", runnable)


def test_a_runnable_without_a_name_of_its_own_is_called_after_its_kind() -> None:
    assert kept(RunnableLambda(answer) | RunnableLambda(answer)).name == "RunnableSequence"


def test_a_graph_with_messages_is_a_subordinate() -> None:
    foreign = graph()
    member = kept(foreign)

    assert isinstance(member, GraphMember)
    assert (member.name, member.graph) == ("foreign", foreign)


def test_a_graph_may_have_a_saver_of_its_own() -> None:
    assert kept(graph(checkpointer=InMemorySaver())).name == "foreign"


def test_a_compiled_tree_is_taken_as_its_agent(compiled: Any) -> None:
    assert kept(compiled) is compiled.agent


@pytest.fixture
def compiled() -> Any:
    from echelons.testing import ScriptedModel

    return Agent("inner", model=ScriptedModel(["done"])).compile()


@pytest.mark.parametrize("thing", [answer, RunnableLambda(answer, name="oracle"), graph()])
def test_what_is_no_agent_shows_nothing_below_itself_and_declares_nothing(thing: Any) -> None:
    member = kept(thing)

    assert member.subordinates == ()
    assert dict(member.capabilities) == {}


def test_what_was_adopted_once_is_taken_as_it_is() -> None:
    member = adopt_member("head", answer)

    assert adopt_member("other", member) is member


# What is refused


@pytest.mark.parametrize(
    "thing",
    [None, 5, "eat", {"name": "eat"}, object(), Caller(), functools.partial(answer)],
)
def test_what_is_none_of_these_is_refused(thing: Any) -> None:
    error = refusal(thing)

    assert error.subordinate is thing
    assert "pass an Agent, a LangGraph graph, a Runnable or a function" in str(error)


@pytest.mark.parametrize("thing", [Agent, RunnableLambda, FunctionMember, StateGraph, int, Caller])
def test_a_class_is_refused_for_it_can_do_nothing(thing: type) -> None:
    assert "pass an object of it" in refusal(thing).why


@pytest.mark.parametrize(
    ("function", "count"), [(nothing, 0), (two, 2), (by_keyword, 1), (isinstance, 2)]
)
def test_a_function_that_does_not_take_the_message_alone_is_refused(
    function: Any, count: int
) -> None:
    error = refusal(function)

    assert error.subordinate == function.__name__
    assert f"requires {count} parameters" in error.why
    assert "the message" in error.why


def test_built_in_function_without_signature_is_refused() -> None:
    assert "wrap it in a function" in refusal(min).why


@pytest.mark.parametrize("saver", [True, False])
def test_a_graph_that_settles_its_own_checkpointer_is_refused(saver: bool) -> None:
    error = refusal(graph(checkpointer=saver))

    assert error.subordinate == "foreign"
    for part in ("'foreign'", f"checkpointer={saver}", "compile it without a checkpointer"):
        assert part in str(error)


def test_graph_without_messages_is_refused_with_its_keys() -> None:
    error = refusal(graph(Other))

    assert error.subordinate == "foreign"
    for part in ("no 'messages' key", "topic", "wrap the graph in a function"):
        assert part in str(error)


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (lambda task: task, "<lambda>"),
        (RunnableLambda(answer, name="bad name"), "bad name"),
        (RunnableLambda(answer, name="run"), "run"),
        (graph(name="bad/name"), "bad/name"),
        (graph(name="delegate"), "delegate"),
    ],
)
def test_what_has_no_valid_name_of_its_own_is_refused(thing: Any, name: str) -> None:
    with raises_code("invalid_name") as refused:
        Agent("head", subordinates=[thing])

    assert refused.value.name == name
    assert repr(name) in str(refused.value)
    assert "subordinate(..., name='...')" in str(refused.value)


@pytest.mark.parametrize(
    "given", [None, 5, "eat", b"eat", {"eat": Agent("eat")}, Agent("eat"), answer]
)
def test_subordinates_that_are_no_list_are_refused(given: Any) -> None:
    with raises_code("invalid_subordinate") as refused:
        Agent("head", subordinates=given)

    assert refused.value.superior == "head"
    assert refused.value.subordinate is given
    assert "pass a list" in str(refused.value)
