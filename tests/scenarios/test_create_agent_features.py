"""What users of `create_agent` expect works at the second level of a tree, or is refused by name.

Each test is a line of the table in `docs/agents.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from echelons import Agent, DelegationResponse, Session, SqliteCheckpointer
from echelons.errors import EventLoopMissing
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.told_lines import without_marks

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

TASK: Any = {"messages": [("user", "go")]}


def team(tools: Any, *steps: Any) -> tuple[Agent, ScriptedModel]:
    """Return a tree of three levels whose second agent has tools and follows steps."""
    model = ScriptedModel(
        {
            "head": [delegate("mid", "go"), "end"],
            "mid": [*steps],
            "leaf": ["done"],
        }
    )
    mid = Agent("mid", tools=tools, subordinates=[Agent("leaf")])
    return Agent("head", model=model, subordinates=[mid]), model


def read_results(model: ScriptedModel, agent: str = "mid") -> list[ToolMessage]:
    """Return the results of tools that the last call of an agent's model was shown."""
    calls = [each for each in model.calls if each.agent == agent]
    return [each for each in calls[-1].messages if isinstance(each, ToolMessage)]


def callers(model: ScriptedModel) -> list[str]:
    return [str(call.agent) for call in model.calls]


def run_both_ways(world: World, agent: Agent, **more: Any) -> None:
    """Run a tree as a graph, and in a session."""
    graph = agent.compile(store=more.get("store"))
    world.invoke(graph, TASK, context=more.get("context"))
    with Session(agent, ":memory:", **more) as session:
        assert world.send(session, "go").text == "end"


# return_direct


@tool(return_direct=True)
def fetch(place: str) -> str:
    """Fetch the report of a place."""
    if place == "nowhere":
        raise ToolException("there is no such place")
    return f"report of {place}"


@tool(return_direct=True)
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


@tool
def look() -> str:
    """Look around."""
    return "fine"


def test_a_tool_that_returns_directly_gives_the_agents_answer(
    world: World, saver: SqliteCheckpointer
) -> None:
    agent, model = team([fetch, look], Call("look"), Call("fetch", {"place": "Rome"}), "never")
    session = Session(agent, saver)

    result = world.send(session, "go")

    assert result.text == "end"
    assert callers(model) == ["head", "mid", "mid", "head"]
    [answer] = read_results(model, "head")
    response = DelegationResponse.load(answer.artifact)
    assert (answer.text, response.status, response.result) == (
        "report of Rome",
        "fulfilled",
        "report of Rome",
    )
    assert response.usage.model_calls == 2
    [trace] = session.trace().subordinates
    messages = session.thread_store.get(trace.thread_id).messages
    assert [(each.type, each.text) for each in messages[-3:]] == [
        ("ai", ""),
        ("tool", "report of Rome"),
        ("ai", "report of Rome"),
    ]


def test_at_the_root_it_is_the_answer_of_the_turn_and_the_next_turn_goes_on(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel([Call("fetch", {"place": "Rome"})])
    session = Session(Agent("head", model=model, tools=[fetch]), saver)

    first = world.send(session, "go")
    second = world.send(session, "again")

    assert (first.text, first.finished) == ("report of Rome", True)
    assert second.text == "report of Rome"
    assert len(model.calls) == 2
    ids = [each.id for each in session.thread_store.get(session.thread_id).messages]
    assert len(ids) == len(set(ids)) == 8


def test_it_returns_directly_after_a_question_in_it_was_answered(
    world: World, saver: SqliteCheckpointer
) -> None:
    agent, model = team([ask], Call("ask", {"question": "Sure?"}), "never")
    [question] = world.send(Session(agent, saver), "go").questions

    result = world.answer(Session(agent, saver), {question.id: "yes"})

    assert result.text == "end"
    [answer] = read_results(model, "head")
    assert answer.text.splitlines()[0] == "they said yes"
    assert callers(model) == ["head", "mid", "head"]


def test_several_results_are_one_answer_in_the_order_of_the_calls(world: World) -> None:
    calls = [Call("fetch", {"place": place}) for place in ("Rome", "Oslo", "Bonn")]
    agent, model = team([fetch], calls, "never")

    run_both_ways(world, agent)

    text = "report of Rome\n\nreport of Oslo\n\nreport of Bonn"
    assert [each.text for each in read_results(model, "head")] == [text]


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        ([Call("fetch", {"place": "Rome"}), Call("look")], ["report of Rome", "fine"]),
        ([Call("fetch", {"place": "Rome"}), delegate("leaf", "x")], ["report of Rome", "done"]),
        ([Call("fetch", {"place": "Rome"}), Call("none")], ["report of Rome", "Error: there is"]),
        ([Call("fetch", {"place": "nowhere"})], ["Error: there is no such place"]),
        ([Call("fetch", {"place": 5})], ["Error: not run: "]),
        ([Call("fetch", {})], ["Error: not run: "]),
    ],
)
def test_beside_other_calls_and_after_an_error_the_model_is_called_again(
    world: World, calls: Any, shown: list[str]
) -> None:
    agent, model = team([fetch, look], calls, "I have read it.")

    run_both_ways(world, agent)

    texts = sorted(without_marks(each.text) for each in read_results(model))
    assert len(texts) == len(shown)
    assert all(a.startswith(b) for a, b in zip(texts, sorted(shown), strict=True))
    assert read_results(model, "head")[0].text == "I have read it."


def test_an_agent_that_is_redirected_meanwhile_reads_that_before_it_answers(
    world: World, saver: SqliteCheckpointer
) -> None:
    @tool(return_direct=True)
    def fetch_slowly() -> str:
        """Fetch the report."""
        session.steer("head/mid", "No, of Oslo.")
        return "report of Rome"

    agent, model = team([fetch_slowly], Call("fetch_slowly"), "It is cold in Oslo.")
    script: Any = {
        "head": [delegate("mid", "go"), "end"],
        "mid": lambda messages: (
            "It is cold in Oslo." if "No, of Oslo." in messages[-1].text else Call("fetch_slowly")
        ),
    }
    model = ScriptedModel(script)
    session = Session(replace(agent, model=model), saver)

    assert world.send(session, "go").text == "end"

    assert callers(model) == ["head", "mid", "mid", "head"]
    assert read_results(model, "head")[0].text == "It is cold in Oslo."
    [trace] = session.trace().subordinates
    assert [mail.text for mail in trace.mail] == ["No, of Oslo."]


def test_after_a_crash_between_the_result_and_the_answer_no_model_is_called(
    world: World, saver: SqliteCheckpointer
) -> None:
    """A fork from the checkpoint in which the result is stored and the answer is not."""
    model = ScriptedModel([Call("fetch", {"place": "Rome"})])
    graph = Agent("head", model=model, tools=[fetch]).compile(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    world.invoke(graph, TASK, config)
    [stored] = [
        each for each in graph.get_state_history(config) if len(each.values["messages"]) == 3
    ]
    assert stored.next == ("reason",)

    state = world.invoke(graph, None, stored.config)

    assert [each.text for each in state["messages"]] == ["go", "", *["report of Rome"] * 2]
    assert len(model.calls) == 1


# Tools that a provider runs


@tool
def web_search(query: str) -> str:
    """Search."""
    return query


WEB = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}


def test_a_provider_tool_is_bound_to_the_model_as_it_is(world: World) -> None:
    given: dict[str, Any] = {"type": "mcp", "server_label": "a", "allowed": ["x"]}
    tools = [WEB, given, {**given, "server_label": "b"}, {"google_search": {}}, look]
    agent, model = team(tools, Call("look"), "done")
    given["allowed"].append("y")

    run_both_ways(world, agent)

    bound = next(each for each in model.calls if each.agent == "mid").tools
    assert bound[:5] == ("look", "web_search", "mcp", "mcp", "google_search")
    [mid] = agent.subordinates
    assert isinstance(mid, Agent)
    assert mid.tools[1]["allowed"] == ["x"]


def test_what_a_provider_has_run_is_kept_and_not_run_again(world: World) -> None:
    searched = AIMessage(
        [
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
            {"type": "text", "text": "It rains."},
        ]
    )
    agent, model = team([WEB], searched)

    run_both_ways(world, agent)

    assert read_results(model, "head")[0].text == "It rains."


def test_a_call_of_a_provider_tool_that_comes_to_us_is_answered_with_an_error(
    world: World,
) -> None:
    agent, model = team([WEB], Call("web_search", {"query": "x"}), "done")

    run_both_ways(world, agent)

    assert "there is no such tool" in read_results(model)[0].text


@pytest.mark.parametrize(
    ("tools", "error"),
    [
        ([{}], "unknown_tool"),
        ([{"type": "function", "function": {"name": "f", "parameters": {}}}], "unknown_tool"),
        ([{"name": "f", "input_schema": {}}], "unknown_tool"),
        ([{"type": 5}], "unknown_tool"),
        ([{"type": "web_search", "at": object()}], "unknown_tool"),
        ([{"type": "x", "name": 5}], "unknown_tool"),
        ([{"type": "x", "name": "report"}], "invalid_name"),
        ([WEB, WEB], "duplicate_name"),
        ([WEB, web_search], "duplicate_name"),
    ],
)
def test_a_dict_that_is_no_provider_tool_is_refused(tools: Any, error: str) -> None:
    with raises_code(error):
        Agent("head", tools=tools)


def test_the_offline_planner_leaves_provider_tools_alone(world: World) -> None:
    agent = Agent("head", tools=[WEB, look])

    with Session(agent, ":memory:") as session:
        assert world.send(session, "look around").finished


# Models that a function chooses


def test_a_function_chooses_the_model_of_each_call_and_is_inherited(world: World) -> None:
    scripts: Any = {
        "head": [delegate("mid", "go"), "end"],
        "mid": [Call("look"), delegate("leaf", "x"), "done"],
        "leaf": ["leaf done"],
    }
    small, large = ScriptedModel(scripts), ScriptedModel(scripts)
    seen: list[Any] = []

    def choose(state: Mapping[str, Any], runtime: Runtime[Any]) -> ScriptedModel:
        seen.append((len(state["messages"]), runtime.context))
        return large if len(state["messages"]) > 1 else small

    mid = Agent("mid", model=choose, tools=[look], subordinates=[Agent("leaf")])
    agent = Agent("head", model=small, subordinates=[mid])

    run_both_ways(world, agent, context="ann")

    assert callers(small) == ["head", "mid", "leaf", "head"] * 2
    assert callers(large) == ["mid", "mid"] * 2
    assert seen == [(n, "ann") for n in (1, 3, 1, 5)] * 2
    tools = {call.agent: call.tools for call in [*large.calls, *small.calls]}
    assert {"look", "call_subordinate", "report", "ask"} <= set(tools["mid"])
    assert set(tools["leaf"]) == {"report", "ask"}


def test_a_function_may_be_async_and_return_a_name(world: World) -> None:
    async def choose(state: Mapping[str, Any]) -> str:
        await asyncio.sleep(0)
        return "offline"

    agent, model = team([], "never")
    mid = Agent("mid", model=choose, tools=[look])
    agent = replace(agent, subordinates=(mid,))

    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"

    assert callers(model) == ["head", "head"]
    with pytest.raises(EventLoopMissing, match="the choice of a model of head/mid"):
        agent.compile().invoke(TASK)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (ConnectionError("no line"), "ModelNotChosen: no model was chosen for 'head/mid': Connec"),
        (None, "ModelNotChosen: no model was chosen for 'head/mid': it returned a value of type N"),
        ("", "it returned a value of type str"),
        (ScriptedModel, "it returned a value of type"),
        ("nothing:x", "UnknownModel"),
        (FakeListChatModel(responses=["x"]), "ModelCannotCall: agent 'mid'"),
    ],
)
def test_a_function_that_chooses_no_model_is_a_failure_of_its_agent(
    world: World, end: Any, why: str
) -> None:
    def choose(state: Mapping[str, Any]) -> Any:
        if isinstance(end, Exception):
            raise end
        return end

    agent, model = team([], "never")
    agent = replace(agent, subordinates=(Agent("mid", model=choose),))

    run_both_ways(world, agent)

    assert why in str(read_results(model, "head")[0].text)


def test_a_turn_for_which_no_model_was_chosen_can_be_resumed(
    world: World, saver: SqliteCheckpointer
) -> None:
    models: list[Any] = [None, ScriptedModel(["done"])]
    session = Session(Agent("head", model=lambda state: models.pop(0)), saver)

    with raises_code("model_not_chosen", match="'head'"):
        world.send(session, "go")

    assert world.resume(session).text == "done"


@pytest.mark.parametrize("model", [5, lambda: "x", ScriptedModel, ["x"]])
def test_what_chooses_no_model_is_refused_when_the_agent_is_made(model: Any) -> None:
    with raises_code("invalid_field", match="model="):
        Agent("head", model=model)


# What a tool is given


def test_a_tool_is_given_state_store_call_id_and_runtime(world: World) -> None:
    seen: list[Any] = []

    def read(
        key: str,
        state: Annotated[dict[str, Any], InjectedState],
        messages: Annotated[list[BaseMessage], InjectedState("messages")],
        store: Annotated[BaseStore, InjectedStore()],
        call_id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime[Any, Any],
    ) -> str:
        """Read all that is given."""
        assert state["messages"] == messages == runtime.state["messages"]
        assert runtime.store is store
        item = store.get(("trips",), key)
        seen.append(([m.type for m in messages], runtime.context, item and item.value["to"]))
        seen.append(runtime.tool_call_id == call_id)
        return "read"

    store = InMemoryStore()
    store.put(("trips",), "one", {"to": "Rome"})
    agent, _ = team([read], Call("read", {"key": "one"}), "done")

    run_both_ways(world, agent, store=store, context="ann")

    assert seen == [(["human", "ai"], "ann", "Rome"), True] * 2


@pytest.mark.parametrize("kind", ["dict", "messages", "runtime", "async"])
def test_a_tool_reads_the_messages_of_all_requests_of_its_thread(world: World, kind: str) -> None:
    seen: list[list[str]] = []

    def note(messages: Any) -> str:
        seen.append([str(each.text) for each in messages if each.type != "tool"])
        return "noted"

    def read_dict(state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Read the state."""
        return note(state["messages"])

    def read_messages(messages: Annotated[list[BaseMessage], InjectedState("messages")]) -> str:
        """Read the messages."""
        return note(messages)

    def read_runtime(runtime: ToolRuntime[Any, Any]) -> str:
        """Read the state of the runtime."""
        return note(runtime.state["messages"])

    async def read_async(state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Read the state in an event loop."""
        return note(state["messages"])

    tools = {
        "dict": read_dict,
        "messages": read_messages,
        "runtime": read_runtime,
        "async": read_async,
    }
    call = Call(f"read_{kind}")
    heads: Iterator[Any] = iter([delegate("mid", "one"), "end", delegate("mid", "two"), "end"])
    mids: Iterator[Any] = iter([call, "first", call, "second"])
    model = ScriptedModel({"head": lambda _: next(heads), "mid": lambda _: next(mids)})
    mid = Agent("mid", tools=[tools[kind]])
    with Session(Agent("head", model=model, subordinates=[mid]), ":memory:") as session:
        for _ in range(2):
            assert world.send(session, "go").text == "end"
    assert seen == [["one", ""], ["one", "", "first", "two", ""]]


def test_without_a_store_the_model_reads_that_there_is_none(world: World) -> None:
    def read(store: Annotated[BaseStore, InjectedStore()]) -> str:
        """Read the store."""
        return str(store)

    agent, model = team([read], Call("read"), "done")

    run_both_ways(world, agent)

    assert "compile your graph with a store" in read_results(model)[0].text


# What a tool returns


def commanding(make: Callable[[str], Command[Any]]) -> Callable[..., Any]:
    def act(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Act on the state."""
        return make(call_id)

    return act


def test_a_tool_may_update_the_messages_of_its_agent(world: World) -> None:
    def make(call_id: str) -> Command[Any]:
        return Command(
            update={"messages": [ToolMessage("acted", tool_call_id=call_id), SystemMessage("and?")]}
        )

    def mid(messages: Any) -> Any:
        return "done" if messages[-1].text == "and?" else Call("act")

    model = ScriptedModel({"head": [delegate("mid", "go"), "end"], "mid": mid})
    worker = Agent("mid", tools=[commanding(make)], subordinates=[Agent("leaf")])
    run_both_ways(world, Agent("head", model=model, subordinates=[worker]))

    [*_, last] = [each for each in model.calls if each.agent == "mid"]
    assert [each.text for each in last.messages[-2:]] == ["acted", "and?"]


def test_an_update_of_a_key_that_the_state_does_not_have_is_an_error_to_the_model(
    world: World,
) -> None:
    def make(call_id: str) -> Command[Any]:
        done = ToolMessage("acted", tool_call_id=call_id)
        return Command(update={"messages": [done], "mood": "good"})

    agent, model = team([commanding(make)], Call("act"), "done")

    run_both_ways(world, agent)

    [result] = read_results(model)
    assert result.status == "error"
    assert "updates 'mood', which the state of its agent does not have" in result.text


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda _: Command(goto="delegate"), "Command(goto='delegate')"),
        (lambda _: Command(graph=Command.PARENT, update={"messages": []}), "graph='__parent__'"),
        (lambda _: Command(), "Command(no update)"),
    ],
)
def test_a_command_that_leads_elsewhere_is_an_error_to_the_model(
    world: World, make: Any, why: str
) -> None:
    agent, model = team([commanding(make)], Call("act"), "done")

    run_both_ways(world, agent)

    [result] = read_results(model)
    assert result.status == "error"
    assert why in result.text
    assert "can only update the messages" in result.text
