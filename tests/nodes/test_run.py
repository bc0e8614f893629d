"""Functions, Runnables and graphs work on a request like agents, each in its own way."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from echelons import Agent, DelegationResponse, Human, Status, ThreadStore
from echelons.errors import EventLoopMissing
from echelons.nodes.run import build_answer_update
from echelons.testing import ScriptedModel, Step, delegate
from tests.failure_ids import without_ids

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def shout(task: str) -> str:
    """Say it louder."""
    return task.upper()


async def whisper(task: str) -> str:
    return task.lower()


def fail(task: str) -> str:
    raise ValueError(f"cannot {task}")


def sure(task: str) -> str:
    return f"{task}: {interrupt('Sure?')}"


def remember(state: MessagesState) -> dict[str, Any]:
    """Answer with all that was said so far."""
    return {"messages": [AIMessage(" / ".join(str(each.text) for each in state["messages"]))]}


def graph_of(node: Any = remember, name: str = "foreign") -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("only", node)
    builder.add_edge(START, "only")
    builder.add_edge("only", END)
    return builder.compile(name=name)


def team(subordinate: Any, *tasks: str) -> Agent:
    """Return a superior that gives a subordinate one task after the other."""
    name = getattr(subordinate, "name", None) or subordinate.__name__
    steps: list[Step] = [*(delegate(name, task) for task in tasks or ("Go",)), "end"]
    return Agent("head", model=ScriptedModel(steps), subordinates=[subordinate])


def responses(messages: list[Any]) -> list[DelegationResponse]:
    answers = [each for each in messages if isinstance(each, ToolMessage)]
    return [DelegationResponse.load(each.artifact) for each in answers]


def ran(subordinate: Any, *tasks: str, saver: Any = ":memory:") -> list[DelegationResponse]:
    """Return what a subordinate answers to some tasks."""
    graph = team(subordinate, *tasks).compile(saver)
    return responses(graph.invoke({"messages": [("user", "plan")]}, CONFIG)["messages"])


async def aran(subordinate: Any, *tasks: str) -> list[DelegationResponse]:
    """Return what a subordinate answers to some tasks in an event loop."""
    graph = team(subordinate, *tasks).compile(":memory:")
    result = await graph.ainvoke({"messages": [("user", "plan")]}, CONFIG)
    return responses(result["messages"])


@pytest.mark.parametrize(
    ("subordinate", "answer"),
    [
        (shout, "GO"),
        (RunnableLambda(shout, name="loud"), "GO"),
        (RunnableLambda(lambda task: AIMessage(f"{task}!"), name="message"), "Go!"),
        (RunnableLambda(lambda task: {"messages": [AIMessage("last")]}, name="state"), "last"),
        (RunnableLambda(lambda task: 5, name="number"), "5"),
        (graph_of(), "Go"),
    ],
    ids=lambda each: getattr(each, "name", getattr(each, "__name__", None)),
)
async def test_whatever_it_is_its_result_is_the_answer(subordinate: Any, answer: str) -> None:
    for [response] in (ran(subordinate), await aran(subordinate), ran(subordinate, saver=None)):
        assert (response.status, response.result) == (Status.FULFILLED, answer)
        assert response.confidence == 1.0


def hush(task: str) -> None:
    """Do something, and say nothing."""


async def hush_later(task: str) -> None:
    """Do something, and say nothing."""


@pytest.mark.parametrize(
    "subordinate",
    [
        hush,
        RunnableLambda(hush, name="nothing"),
        RunnableLambda(lambda task: " \n", name="space"),
        RunnableLambda(lambda task: AIMessage(""), name="message"),
        RunnableLambda(lambda task: {"messages": [AIMessage("")]}, name="state"),
        graph_of(lambda _: {"messages": [AIMessage("")]}),
    ],
    ids=lambda each: getattr(each, "name", getattr(each, "__name__", None)),
)
async def test_an_empty_answer_is_no_answer(subordinate: Any) -> None:
    for [response] in (ran(subordinate), await aran(subordinate), ran(subordinate, saver=None)):
        assert (response.status, response.result) == (Status.UNABLE, "")
        assert response.reason == "empty: it has answered nothing"
        assert response.failed, "it may be asked again"


async def test_an_async_function_that_returns_nothing_has_not_answered_either() -> None:
    [response] = await aran(hush_later)

    assert (response.status, response.reason) == (
        Status.UNABLE,
        "empty: it has answered nothing",
    )


async def test_an_async_function_is_awaited() -> None:
    [response] = await aran(whisper)

    assert response.result == "go"


def test_an_async_function_without_an_event_loop_is_refused_by_name() -> None:
    with pytest.raises(EventLoopMissing, match="whisper; run it with ainvoke"):
        ran(whisper)


def test_a_function_that_is_found_to_be_async_only_when_it_is_called_is_no_answer() -> None:
    def murmur(task: str) -> Any:
        return whisper(task)

    [response] = ran(murmur)

    assert response.status is Status.UNABLE
    assert response.reason.startswith("EventLoopMissing: these can only run in an event loop")


async def test_what_fails_is_unable_and_says_why() -> None:
    for [response] in (ran(fail), await aran(fail)):
        assert response.status is Status.UNABLE
        assert without_ids(response.reason) == "ValueError: cannot Go"


def test_a_function_has_a_thread_with_its_task_and_its_answer() -> None:
    graph = team(shout).compile(":memory:")
    graph.invoke({"messages": [("user", "plan")]}, CONFIG)
    store = ThreadStore(graph.checkpointer)  # type: ignore[arg-type]

    [thread_id] = store.subordinates("t")

    thread = store.get(thread_id)
    assert (thread.agent, thread.path) == ("shout", "head/shout")
    assert [(each.type, each.text) for each in thread.messages] == [("human", "Go"), ("ai", "GO")]
    assert thread.messages[1].name == "shout"


@pytest.mark.parametrize(
    "subordinate", [sure, graph_of(lambda _: {"messages": [AIMessage(interrupt("Sure?"))]})]
)
def test_a_question_inside_goes_up_to_the_human_and_its_answer_down(subordinate: Any) -> None:
    graph = team(subordinate).compile(":memory:")

    stopped = graph.invoke({"messages": [("user", "plan")]}, CONFIG)
    result = graph.invoke(Command(resume="yes"), CONFIG)

    assert [each.value for each in stopped["__interrupt__"]] == ["Sure?"]
    [response] = responses(result["messages"])
    assert response.result.endswith("yes")


def test_a_graph_sees_the_whole_of_its_thread() -> None:
    first, second = ran(graph_of(), "one", "two")

    assert first.result == "one"
    assert second.result == "one / one / two"


def test_a_function_sees_its_latest_task_only() -> None:
    assert [each.result for each in ran(shout, "one", "two")] == ["ONE", "TWO"]


def test_a_compiled_tree_works_inside_another() -> None:
    inner = Agent("inner", model=ScriptedModel(["from inside"])).compile()

    [response] = ran(inner)

    assert response.result == "from inside"


def test_a_function_that_wants_a_message_gets_its_text() -> None:
    model = ScriptedModel([delegate("shout", "two\nlines"), "end"])
    graph = Agent("head", model=model, subordinates=[shout]).compile()

    [response] = responses(graph.invoke({"messages": [HumanMessage("plan")]})["messages"])

    assert response.result == "TWO\nLINES"


def test_an_answer_of_one_request_has_one_id() -> None:
    metadata = {"agent": "eat", "agent_thread_id": "t", "request_id": "r"}
    config: Any = {"metadata": metadata}
    other: Any = {"metadata": {**metadata, "request_id": "s"}}

    [message] = build_answer_update("x", config)["messages"]

    assert message.id == build_answer_update("y", config)["messages"][0].id
    assert message.id != build_answer_update("x", other)["messages"][0].id
    assert message.name == "eat"


async def test_a_slow_function_does_not_hold_up_the_event_loop() -> None:
    loop_thread = threading.get_ident()
    ran_on: list[int] = []

    def slow(message: str) -> str:
        ran_on.append(threading.get_ident())
        return message

    graph = Agent("head", model=ScriptedModel([delegate("slow", "x"), "done"]), subordinates=[slow])
    await graph.compile().ainvoke({"messages": [("user", "go")]})

    assert ran_on and loop_thread not in ran_on


def test_a_human_is_asked_the_task_and_its_answer_is_the_response() -> None:
    saver = InMemorySaver()
    graph = team(Human("anna"), "Sign it").compile(saver)
    asking = graph.invoke({"messages": [("user", "plan")]}, CONFIG)
    [question] = asking["__interrupt__"]
    assert question.value == {
        "kind": "agent_question",
        "question": "Sign it",
        "addressee": "anna",
    }

    ended = graph.invoke(Command(resume={"status": "partial", "result": "half"}), CONFIG)

    [response] = responses(ended["messages"])
    assert (response.status, response.result, response.failed) == (Status.PARTIAL, "half", False)
    [thread] = ThreadStore(saver).subordinates(CONFIG["configurable"]["thread_id"])
    said = ThreadStore(saver).get(thread).messages
    assert [(each.text, each.name) for each in said] == [("Sign it", None), ("half", "anna")]


def test_unreachable_human_is_unable() -> None:
    result = team(Human("anna")).compile().invoke({"messages": [("user", "plan")]}, CONFIG)

    [response] = responses(result["messages"])
    assert response.status is Status.UNABLE
    assert response.reason.startswith("no_checkpointer: ")
