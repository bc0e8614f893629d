"""A tool call runs by itself; what goes wrong in it is told to the model, and to nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt

from echelons import Agent
from echelons.errors import EventLoopMissing, UnreadableRecord
from echelons.langgraph_internals import READ_KEY
from echelons.nodes.act import find_call
from echelons.testing import Call, ScriptedModel, Step
from tests.failure_ids import without_ids


@tool
def search(query: str, limit: int = 3) -> str:
    """Look something up."""
    return f"{limit} for {query}"


@tool
def fail(how: str) -> str:
    """Fail."""
    if how == "exception":
        raise ToolException("There is no such city; try Rome.")
    raise ValueError("no such city\nTraceback: secret")


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


@tool
def count(runtime: ToolRuntime) -> str:
    """Count the messages."""
    return f"{len(runtime.state['messages'])} messages, call {runtime.tool_call_id}"


@tool
async def wait(query: str) -> str:
    """Wait for something."""
    return f"waited for {query}"


def agent(*steps: Step, tools: list[BaseTool]) -> Agent:
    return Agent("head", model=ScriptedModel([*steps, "done"]), tools=tools)


def ran(*steps: Step, tools: list[BaseTool]) -> list[BaseMessage]:
    """Return the conversation of an agent that makes some calls and then ends."""
    result = agent(*steps, tools=tools).compile().invoke({"messages": [("user", "go")]})
    return list(result["messages"])


def answers(messages: list[BaseMessage]) -> list[ToolMessage]:
    return [each for each in messages if isinstance(each, ToolMessage)]


def test_a_tools_result_is_the_answer_to_its_call() -> None:
    [answer] = answers(ran(Call("search", {"query": "Rome"}, "7"), tools=[search]))

    assert (answer.text, answer.tool_call_id) == ("3 for Rome", "7")
    assert (answer.name, answer.status) == ("search", "success")


def test_a_send_names_a_call_of_the_last_reply_and_older_ones_hold_it() -> None:
    def call(place: str) -> ToolCall:
        return ToolCall(name="search", args={"query": place}, id="1", type="tool_call")

    earlier, last = (AIMessage("", tool_calls=[call(each)]) for each in ("Rome", "Pisa"))
    held = {"messages": [earlier, ToolMessage("x", tool_call_id="1"), last]}
    config: Any = {"configurable": {READ_KEY: lambda keys: held}}

    assert find_call("1", config)["args"] == {"query": "Pisa"}
    assert find_call([call("Lucca")], config)["args"] == {"query": "Lucca"}
    with pytest.raises(UnreadableRecord, match=r"call '2' waits, .* update_state"):
        find_call("2", config)

    held["messages"] += [AIMessage("later")]

    assert find_call("1", config)["args"] == {"query": "Pisa"}

    held["messages"][2] = AIMessage("edited")

    with pytest.raises(UnreadableRecord, match="call '1' waits"):
        find_call("1", config)


def test_each_of_two_calls_of_one_id_is_run() -> None:
    graph = agent("done", "done", tools=[search]).compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [("user", "x")]}, config)
    calls = [
        ToolCall(name="search", args={"query": each}, id="1", type="tool_call")
        for each in ("Rome", "Pisa")
    ]
    graph.update_state(config, {"messages": [AIMessage("", tool_calls=calls)]}, as_node="reason")

    found = answers(graph.invoke(None, config)["messages"])

    assert [each.text for each in found] == ["3 for Rome", "3 for Pisa"]


def test_a_call_waits_through_a_reply_that_its_answer_adds_and_one_taken_out_is_named() -> None:
    first = Call("ask", {"question": "go?"}, "1")
    graph = agent(first, "done", "done", tools=[ask]).compile(checkpointer=InMemorySaver())

    def resume(thread_id: str, added: BaseMessage) -> Any:
        config: Any = {"configurable": {"thread_id": thread_id}}
        graph.invoke({"messages": [("user", "x")]}, config)
        return graph.invoke(Command(resume="yes", update={"messages": [added]}), config)

    [answer] = answers(resume("a", AIMessage("one moment"))["messages"])
    assert answer.text == "they said yes"
    with pytest.raises(UnreadableRecord, match="call '1' waits"):
        resume("b", RemoveMessage(REMOVE_ALL_MESSAGES))
    config: Any = {"configurable": {"thread_id": "b"}}
    again = [ToolCall(name="ask", args={"question": "go?"}, id="2", type="tool_call")]

    graph.update_state(config, {"messages": [AIMessage("", tool_calls=again)]}, as_node="reason")
    graph.invoke(None, config)
    [answer] = answers(graph.invoke(Command(resume="no"), config)["messages"])

    assert answer.text == "they said no"


async def test_an_async_tool_runs_in_an_event_loop() -> None:
    graph = agent(Call("wait", {"query": "Rome"}), tools=[wait]).compile()

    result = await graph.ainvoke({"messages": [("user", "go")]})

    assert [each.text for each in answers(result["messages"])] == ["waited for Rome"]


def test_an_async_tool_without_an_event_loop_is_refused_by_name() -> None:
    with pytest.raises(EventLoopMissing, match="the tool 'wait' of head"):
        ran(Call("wait", {"query": "Rome"}), tools=[wait])


def test_every_call_of_a_message_gets_its_own_answer() -> None:
    calls = [Call("search", {"query": city}, city) for city in ("Rome", "Oslo")]

    found = answers(ran(calls, tools=[search]))

    assert {each.tool_call_id: each.text for each in found} == {
        "Rome": "3 for Rome",
        "Oslo": "3 for Oslo",
    }


def test_a_tool_that_fails_takes_nothing_from_the_others() -> None:
    calls = [Call("fail", {"how": "error"}, "1"), Call("search", {"query": "Rome"}, "2")]

    messages = ran(calls, tools=[fail, search])

    assert [each.status for each in answers(messages)] == ["error", "success"]
    assert messages[-1].text == "done"


def test_model_reads_kind_and_first_line_of_an_error() -> None:
    [answer] = answers(ran(Call("fail", {"how": "error"}), tools=[fail]))

    assert without_ids(answer.text) == "Error: ValueError: no such city"


def test_an_error_that_was_written_for_the_model_reaches_it_as_it_is() -> None:
    [answer] = answers(ran(Call("fail", {"how": "exception"}), tools=[fail]))

    assert without_ids(answer.text) == "Error: There is no such city; try Rome."
    assert answer.status == "error"


@pytest.mark.parametrize(
    ("args", "field"),
    [({}, "query"), ({"query": None}, "query"), ({"query": "x", "limit": "many"}, "limit")],
)
def test_model_reads_which_arguments_do_not_fit(args: dict[str, Any], field: str) -> None:
    [answer] = answers(ran(Call("search", args), tools=[search]))

    assert answer.status == "error"
    assert answer.text.startswith("Error: ")
    assert field in answer.text


def test_a_tool_can_see_the_state_and_its_call() -> None:
    [answer] = answers(ran(Call("count", {}, "7"), tools=[count]))

    assert answer.text == "2 messages, call 7"


def test_a_tool_may_change_the_conversation_with_a_command() -> None:
    @tool
    def note(runtime: ToolRuntime) -> Command[Any]:
        """Note something."""
        told = ToolMessage("noted", tool_call_id=runtime.tool_call_id)
        return Command(update={"messages": [told]})

    assert [each.text for each in answers(ran(Call("note"), tools=[note]))] == ["noted"]


def test_a_question_of_a_tool_stops_the_run_and_is_no_error() -> None:
    graph = agent(Call("ask", {"question": "Sure?"}), tools=[ask]).compile(":memory:")
    config: Any = {"configurable": {"thread_id": "1"}}

    stopped = graph.invoke({"messages": [("user", "go")]}, config)
    result = graph.invoke(Command(resume="yes"), config)

    assert [each.value for each in stopped["__interrupt__"]] == ["Sure?"]
    assert answers(stopped["messages"]) == []
    assert [each.text for each in answers(result["messages"])] == ["they said yes"]


def test_an_answered_question_runs_no_other_tool_again() -> None:
    runs: list[str] = []

    @tool
    def book(city: str) -> str:
        """Book a room."""
        runs.append(city)
        return "booked"

    calls = [Call("book", {"city": "Rome"}, "1"), Call("ask", {"question": "Sure?"}, "2")]
    graph = agent(calls, tools=[book, ask]).compile(":memory:")
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [("user", "go")]}, config)

    result = graph.invoke(Command(resume="yes"), config)

    assert runs == ["Rome"]
    assert [each.text for each in answers(result["messages"])] == ["booked", "they said yes"]


class Stop(BaseException):
    """What no tool call may swallow."""


def test_what_is_no_exception_goes_through() -> None:
    @tool
    def stop() -> str:
        """Stop everything."""
        raise Stop

    with pytest.raises(Stop):
        ran(Call("stop"), tools=[stop])
