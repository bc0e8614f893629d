"""A run is told as events: who did what, in order, each thing once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolRuntime
from langgraph.types import interrupt

from echelons import Agent, RunEvent, Session, Usage
from echelons.nodes.subordinate import MAX_NODES
from echelons.runtime.run_events import EventTranslator, RunEventKind
from echelons.testing import Call, Reply, ScriptedModel, delegate, delegate_many, report
from tests.failure_ids import without_ids

HEAD, DAYS, EAT = "head", "head/days", "head/days/eat"


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


@tool
def search(query: str) -> str:
    """Look something up."""
    if query == "nothing":
        raise ValueError("nothing found")
    return f"found {query}"


def shout(task: str) -> str:
    """Say it louder."""
    return task.upper()


def team(*last: Any, **own: Any) -> Agent:
    """Return a tree of three levels whose lowest agent follows some steps."""
    model = ScriptedModel(
        {
            "head": [Reply(calls=[delegate("days", "one day")], usage=(1, 2)), "planned"],
            "days": [Reply(calls=[delegate("eat", "dinner")], usage=(10, 20)), "day done"],
            "eat": [*last],
        }
    )
    days = Agent("days", subordinates=[Agent("eat", tools=[ask, search])])
    return Agent("head", model=model, subordinates=[days], **own)


def told(agent: Agent) -> list[RunEvent]:
    """Return the events of one turn."""
    with Session(agent, ":memory:") as session:
        return [*session.send("plan")]


def briefly(events: list[RunEvent], *but: RunEventKind) -> list[tuple[str, str, str]]:
    return [(e.path, str(e.kind), e.content) for e in events if e.kind not in but]


def only(events: list[RunEvent], kind: RunEventKind) -> list[RunEvent]:
    return [each for each in events if each.kind is kind]


def test_events_of_three_levels_are_in_order() -> None:
    events = told(team(Call("search", {"query": "pizza"}), "pizza"))

    assert briefly(events, RunEventKind.TOKEN) == [
        (HEAD, "task", "plan"),
        (HEAD, "message", ""),
        (HEAD, "delegation", "call_subordinate"),
        (DAYS, "task", "one day"),
        (DAYS, "message", ""),
        (DAYS, "delegation", "call_subordinate"),
        (EAT, "task", "dinner"),
        (EAT, "message", ""),
        (EAT, "tool_call", "search"),
        (EAT, "tool_result", "found pizza"),
        (EAT, "message", "pizza"),
        (EAT, "response", "pizza"),
        (DAYS, "message", "day done"),
        (DAYS, "response", "day done"),
        (HEAD, "message", "planned"),
    ]


def resumed(events: list[RunEvent]) -> dict[str, bool]:
    return {e.path: bool(e.data.get("resumed")) for e in only(events, RunEventKind.TASK)}


async def test_continuing_agent_differs_from_beginning_one() -> None:
    asking = (Call("ask", {"question": "Sure?"}), "thanks")
    with Session(team(*asking), ":memory:") as session:
        first = [*session.send("plan")]
        answered = [*session.answer(session.inbox()[0].id, "yes")]
        again = [*session.send("plan again")]
    async with Session(team(*asking), ":memory:") as session:
        await (await session.asend("plan")).result()
        [question] = await session.ainbox()
        there = [each async for each in await session.aanswer(question.id, "yes")]

    assert resumed(first) == {HEAD: False, DAYS: False, EAT: False}
    assert resumed(answered) == resumed(there) == {HEAD: True, DAYS: True, EAT: True}
    assert resumed(again)[HEAD] is False
    tasks = [each.content for each in only(answered, RunEventKind.TASK)]
    assert tasks == ["dinner", "one day", "plan"]


async def test_run_in_event_loop_has_the_same_events() -> None:
    agent = team(Call("search", {"query": "pizza"}), "pizza")
    async with Session(agent, ":memory:") as session:
        there = [each async for each in await session.asend("plan")]

    assert briefly(there, RunEventKind.TOKEN) == briefly(told(agent), RunEventKind.TOKEN)


def test_every_event_names_its_agents_thread() -> None:
    events = told(team("pizza"))

    threads = {each.path: each.thread_id for each in events}
    assert set(threads) == {HEAD, DAYS, EAT}
    assert len(set(threads.values())) == 3


def test_reply_is_streamed_piece_by_piece_and_then_whole() -> None:
    events = [each for each in told(team("good pizza here")) if each.path == EAT]

    assert [each.content for each in only(events, RunEventKind.TOKEN)] == [
        "good ",
        "pizza ",
        "here",
    ]
    kinds = [each.kind for each in events]
    assert kinds.index(RunEventKind.MESSAGE) > max(
        n for n, k in enumerate(kinds) if k is RunEventKind.TOKEN
    )


def test_reasoning_of_a_model_is_separate_from_its_text() -> None:
    events = told(team(Reply("pizza", reasoning="they are hungry")))

    [message] = [each for each in only(events, RunEventKind.MESSAGE) if each.path == EAT]
    assert (message.content, message.reasoning) == ("pizza", "they are hungry")
    pieces = [each for each in only(events, RunEventKind.TOKEN) if each.path == EAT]
    assert "".join(each.reasoning for each in pieces) == "they are hungry"
    assert "".join(each.content for each in pieces) == "pizza"


def test_reply_has_its_usage_and_response_that_of_the_subtree() -> None:
    events = told(team(Reply("pizza", usage=(100, 200))))

    costs = {(e.path, e.content): e.usage for e in only(events, RunEventKind.MESSAGE)}
    assert costs[HEAD, ""] == Usage(input_tokens=1, output_tokens=2, model_calls=1)
    assert costs[HEAD, "planned"] == Usage(model_calls=1, unknown_calls=1)
    assert costs[EAT, "pizza"] == Usage(input_tokens=100, output_tokens=200, model_calls=1)
    responses = {each.path: each.usage for each in only(events, RunEventKind.RESPONSE)}
    assert responses == {
        EAT: Usage(input_tokens=100, output_tokens=200, model_calls=1),
        DAYS: Usage(input_tokens=110, output_tokens=220, model_calls=3, unknown_calls=1),
    }
    others = [e for e in events if e.kind not in (RunEventKind.MESSAGE, RunEventKind.RESPONSE)]
    assert all(each.usage == Usage() for each in others)


def test_question_passes_every_level_and_is_shown_once() -> None:
    events = told(team(Call("ask", {"question": "Sure?"}), "thanks"))

    [question] = only(events, RunEventKind.QUESTION)
    assert (question.path, question.content) == (EAT, "Sure?")
    assert question.data["value"] == "Sure?"
    assert question.data["id"]
    assert events[-1] is question


def test_call_is_shown_with_its_arguments() -> None:
    events = told(team(Call("search", {"query": "pizza"}, "7"), "pizza"))

    [call] = only(events, RunEventKind.TOOL_CALL)
    assert call.data == {"id": "7", "arguments": {"query": "pizza"}}
    delegation = only(events, RunEventKind.DELEGATION)[0]
    assert delegation.data["arguments"] == {
        "message": "one day",
        "reset": False,
        "subordinate": "days",
    }


def test_failure_of_a_tool_is_its_result() -> None:
    events = told(team(Call("search", {"query": "nothing"}, "7"), "pizza"))

    [result] = only(events, RunEventKind.TOOL_RESULT)
    assert result.data == {"id": "7", "status": "error", "name": "search"}
    assert without_ids(result.content) == "Error: ValueError: nothing found"
    assert only(events, RunEventKind.ERROR) == []


def test_response_says_how_it_ended() -> None:
    events = told(team(report("partial", "half", id="r", confidence=0.5, reason="late")))

    response = only(events, RunEventKind.RESPONSE)[0]
    assert (response.path, response.content) == (EAT, "half")
    data = dict(response.data)
    assert data.pop("id") and data.pop("request")
    assert data == {
        **{"agent": "eat", "status": "partial", "reason": "late", "confidence": 0.5},
        **{"attempt": 1, "final": True},
    }


def test_agents_asked_for_one_task_respond_under_their_paths() -> None:
    model = ScriptedModel(
        {
            "head": [Call("call_subordinate", {"message": "cook dinner"}), "done"],
            "eat": [report("unable", "", reason="no oven")],
            "chef": [Reply("pizza", usage=(1, 2))],
        }
    )
    days = Agent("days", subordinates=[Agent("chef", capabilities={"cook dinner": 0.8})])
    eat = Agent("eat", capabilities={"cook dinner": 0.9})
    events = told(Agent("head", model=model, subordinates=[eat, days]))

    [asked, forwarded] = only(events, RunEventKind.DELEGATION)
    assert [
        (each.path, each.content, each.data["id"], each.data["agent"], each.data["final"])
        for each in only(events, RunEventKind.RESPONSE)
    ] == [
        ("head/eat", "", asked.data["id"], "eat", False),
        ("head/days/chef", "pizza", forwarded.data["id"], "chef", True),
        ("head/days", "pizza", asked.data["id"], "chef", True),
    ]
    assert {each.path for each in events} == {"head", "head/eat", "head/days", "head/days/chef"}


def test_agent_asked_last_in_vain_responds_itself() -> None:
    model = ScriptedModel(
        {
            "head": [Call("call_subordinate", {"message": "cook dinner"}), "sorry"],
            "eat": [report("unable", "", reason="no oven")],
            "chef": [report("unable", "", reason="no time")],
        }
    )
    below = [Agent(name, capabilities={"cook dinner": 0.9}) for name in ("chef", "eat")]
    events = told(Agent("head", model=model, subordinates=below))

    assert [
        (each.path, each.data["reason"], each.data["attempt"], each.data["final"])
        for each in only(events, RunEventKind.RESPONSE)
    ] == [("head/chef", "no time", 1, False), ("head/eat", "no oven", 2, True)]


def test_each_request_of_a_call_has_an_id_that_its_response_has_too() -> None:
    both = delegate_many(delegate("eat", "dinner"), delegate("days", "a day"), id="7")
    model = ScriptedModel({"head": [both, "done"], "*": ["said"]})
    events = told(Agent("head", model=model, subordinates=[Agent("eat"), Agent("days")]))

    assert [each.data["id"] for each in only(events, RunEventKind.DELEGATION)] == ["7/1", "7/2"]
    assert {each.path: each.data["id"] for each in only(events, RunEventKind.RESPONSE)} == {
        "head/eat": "7/1",
        "head/days": "7/2",
    }


def test_a_model_that_fails_below_is_an_error_and_then_an_unable_response() -> None:
    events = told(team(ConnectionError("no line")))

    [error] = only(events, RunEventKind.ERROR)
    assert (error.path, error.content) == (EAT, "no line")
    assert only(events, RunEventKind.RESPONSE)[0].data["status"] == "unable"
    assert events[-1].content == "planned"


def test_mistake_of_a_model_is_the_answer_to_its_call() -> None:
    events = told(team(Call("serach", {}, "7"), "pizza"))

    [result] = only(events, RunEventKind.TOOL_RESULT)
    assert (result.path, result.data["status"], result.data["name"]) == (EAT, "error", "serach")


def test_function_is_described_like_an_agent() -> None:
    model = ScriptedModel([delegate("shout", "go"), "end"])

    events = told(Agent("head", model=model, subordinates=[shout]))

    assert [each for each in briefly(events, RunEventKind.TOKEN) if each[0] == "head/shout"] == [
        ("head/shout", "task", "go"),
        ("head/shout", "message", "GO"),
        ("head/shout", "response", "GO"),
    ]


def test_agent_in_a_crowd_is_reported_like_others() -> None:
    model = ScriptedModel({"head": [delegate("a7", "go"), "end"], "a7": ["done"]})
    crowd = [Agent(f"a{n}") for n in range(MAX_NODES + 1)]

    events = told(Agent("head", model=model, subordinates=crowd))

    assert [each for each in briefly(events, RunEventKind.TOKEN) if each[0] == "head/a7"] == [
        ("head/a7", "task", "go"),
        ("head/a7", "message", "done"),
        ("head/a7", "response", "done"),
    ]


def test_every_request_of_a_thread_is_a_separate_task_event() -> None:
    model = ScriptedModel(
        {"head": [delegate("eat", "one"), delegate("eat", "two"), "end"], "eat": ["done"]}
    )

    events = told(Agent("head", model=model, subordinates=[Agent("eat")]))

    tasks = [each for each in only(events, RunEventKind.TASK) if each.path == "head/eat"]
    assert [each.content for each in tasks] == ["one", "two"]
    assert len({each.thread_id for each in tasks}) == 1


def test_events_of_parallel_calls_name_the_thread_and_the_call() -> None:
    calls = [delegate("eat", task, id=task) for task in ("one", "two")]
    below = [delegate("cook", task, id=f"below-{task}") for task in ("a", "b")]
    model = ScriptedModel(
        {"head": [calls, "end"], "eat": [below, "done now"], "cook": ["it is cooked"]}
    )
    eat = Agent("eat", subordinates=[Agent("cook")])

    events = told(Agent("head", model=model, subordinates=[eat]))

    started = {
        (each.data["id"], each.data["thread_id"]) for each in only(events, RunEventKind.DELEGATION)
    }
    seen = {(each.call_id, each.thread_id) for each in events if each.path != "head"}
    assert seen == started
    assert len(seen) == 6
    assert {each.call_id for each in events if each.path == "head"} == {""}
    for path, kind in (("head/eat", RunEventKind.TOKEN), ("head/eat/cook", RunEventKind.TASK)):
        assert {each.call_id for each in events if (each.path, each.kind) == (path, kind)} == {
            call for call, _ in started if call.startswith("below") is path.endswith("cook")
        }


def test_an_event_is_plain_json() -> None:
    events = told(team(Call("search", {"query": "pizza"}), "pizza"))

    for each in events:
        assert json.loads(json.dumps(each.as_json())) == each.as_json()
        assert each.as_json()["kind"] == str(each.kind)


def writing_team() -> Agent:
    """Return agents of three levels, a function, a graph and a crowd that write to the stream."""

    def count(runtime: ToolRuntime[Any, Any]) -> str:
        """Count."""
        runtime.stream_writer("one")
        get_stream_writer()({"two": 2})
        return "counted"

    def shouting(task: str) -> str:
        """Say it louder."""
        get_stream_writer()("loud")
        return task.upper()

    def node(state: MessagesState) -> dict[str, Any]:
        get_stream_writer()("inside")
        return {"messages": [AIMessage("graph")]}

    inner = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    # A graph in a graph, one namespace further down.
    outer = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    crowd = [Agent(f"a{n}", tools=[count]) for n in range(MAX_NODES + 1)]
    days = Agent("days", tools=[count], subordinates=[Agent("eat", tools=[count])])
    below = [days, shouting, outer.compile(name="outer"), Agent("crowd", subordinates=crowd)]
    names = ("days", "shouting", "outer", "crowd")
    model = ScriptedModel(
        {
            "head": [Call("count"), [delegate(name, "go") for name in names], "end"],
            "days": [Call("count"), delegate("eat", "go"), "done"],
            "crowd": [delegate("a7", "go"), "done"],
            "eat": [Call("count"), "done"],
            "a7": [Call("count"), "done"],
        }
    )
    return Agent("head", model=model, tools=[count], subordinates=below)


@pytest.mark.parametrize("in_loop", [False, True])
def test_what_a_tool_writes_to_the_stream_is_an_event_of_its_agent(in_loop: bool) -> None:
    async def astart(session: Session) -> list[RunEvent]:
        return [event async for event in await session.asend("plan")]

    with Session(writing_team(), ":memory:") as session:
        events = asyncio.run(astart(session)) if in_loop else [*session.send("plan")]

    custom = only(events, RunEventKind.CUSTOM)
    written = {(each.path, each.content) for each in custom}
    counting = (HEAD, DAYS, EAT, "head/crowd/a7")
    assert written == {
        *((path, text) for path in counting for text in ("one", "{'two': 2}")),
        ("head/shouting", "loud"),
        ("head/outer", "inside"),
    }
    assert len(custom) == len(written)
    threads = {each.path: each.thread_id for each in only(events, RunEventKind.TASK)}
    assert all(each.thread_id == threads[each.path] for each in custom)
    assert {"two": 2} in [each.data["value"] for each in custom]


def test_what_a_tool_writes_comes_before_its_result() -> None:
    def count(runtime: ToolRuntime[Any, Any]) -> str:
        """Count."""
        runtime.stream_writer(1)
        runtime.stream_writer(2)
        return "counted"

    agent = Agent("head", model=ScriptedModel([Call("count"), "end"]), tools=[count])
    kinds = [str(each.kind) for each in told(agent) if each.kind is not RunEventKind.TOKEN]

    assert kinds == ["task", "message", "tool_call", "custom", "custom", "tool_result", "message"]


def test_what_is_written_may_be_any_object_and_is_plain_json_in_the_end() -> None:
    class Progress:
        def __str__(self) -> str:
            return "half of it"

    def count(runtime: ToolRuntime[Any, Any]) -> str:
        """Count."""
        runtime.stream_writer({(1, 2): Progress()})
        return "counted"

    agent = Agent("head", model=ScriptedModel([Call("count"), "end"]), tools=[count])
    [event] = only(told(agent), RunEventKind.CUSTOM)

    assert isinstance(event.data["value"][1, 2], Progress)
    assert json.loads(json.dumps(event.as_json()))["data"] == {"value": {"(1, 2)": "half of it"}}


# The translator by itself


def part(mode: str, payload: Any) -> Any:
    return ((), mode, payload)


@pytest.mark.parametrize(
    "chunk",
    [
        AIMessage("whole"),
        AIMessageChunk(content=""),
        HumanMessage("from a person"),
        AIMessageChunk(content="", tool_call_chunks=[]),
    ],
)
def test_only_pieces_of_replies_are_tokens(chunk: Any) -> None:
    assert list(EventTranslator().translate_part(part("messages", (chunk, {})))) == []


def test_end_of_unseen_task_reports_nothing() -> None:
    ended: dict[str, Any] = {
        "id": "1",
        "name": "reason",
        "error": None,
        "interrupts": [],
        "result": {},
    }

    assert list(EventTranslator().translate_part(part("tasks", ended))) == []
