"""Runaway agents: whatever they do, a tree does no more than its limits say, and says so."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from echelons import Agent, Limits, Session, SqliteCheckpointer
from echelons.testing import Call, FakeClock, Reply, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.proof import sample
from tests.scenarios.drivers.forks import Forks
from tests.scenarios.drivers.runaway import LIMITS

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

TASK: Any = {"messages": [("user", "go")]}


class Counter:
    """Counts the steps that a tree takes in the world."""

    def __init__(self) -> None:
        self.tools = 0
        self.models: list[ScriptedModel] = []

    @property
    def calls(self) -> int:
        """Model calls."""
        return sum(len(model.calls) for model in self.models)

    def tool(self) -> Any:
        @tool
        def dig(place: str = "here") -> str:
            """Dig."""
            self.tools += 1
            return f"dug {place}"

        return dig


def last(messages: Sequence[BaseMessage]) -> AIMessage:
    assert isinstance(messages[-1], AIMessage)
    return messages[-1]


def check_closed(messages: Sequence[BaseMessage]) -> None:
    """Check that every call of a conversation is answered."""
    asked = {
        call["id"] for each in messages if isinstance(each, AIMessage) for call in each.tool_calls
    }
    answered = {each.tool_call_id for each in messages if isinstance(each, ToolMessage)}
    assert asked == answered


def digging(counter: Counter, limits: Limits) -> Agent:
    model = ScriptedModel({"head": lambda _: Call("dig")})
    return Agent("head", model=model, tools=[counter.tool()], limits=limits)


@pytest.mark.parametrize("calls", [1, 2, 7])
def test_an_agent_that_calls_tools_for_ever_ends_at_its_limit_of_model_calls(
    world: World, calls: int
) -> None:
    counter = Counter()
    head = digging(counter, Limits(calls=calls))

    messages = world.invoke(head.compile(), TASK)["messages"]

    assert isinstance(head.model, ScriptedModel)
    assert len(head.model.calls) == counter.tools == calls
    assert last(messages).text == f"Not finished (limit: {calls} of {calls} model calls)."
    assert last(messages).response_metadata["halt"] == {
        "kind": "limit",
        "reason": f"limit: {calls} of {calls} model calls",
    }
    check_closed(messages)


@pytest.mark.parametrize("steps", [1, 2, 7, 8])
def test_model_calls_and_tool_calls_together_are_the_steps(world: World, steps: int) -> None:
    counter = Counter()
    head = digging(counter, Limits(steps=steps))

    messages = world.invoke(head.compile(), TASK)["messages"]

    assert isinstance(head.model, ScriptedModel)
    assert len(head.model.calls) + counter.tools == steps
    assert last(messages).text == f"Not finished (limit: {steps} of {steps} steps)."
    check_closed(messages)
    if steps % 2:
        assert messages[-2].text == f"not run: limit: {steps} of {steps} steps"


def test_a_superior_and_its_subordinate_that_play_for_ever_end(
    world: World, saver: SqliteCheckpointer
) -> None:
    numbers = count()
    model = ScriptedModel(
        {"head": lambda _: delegate("echo", f"and {next(numbers)}"), "echo": lambda _: "and again"}
    )
    head = Agent("head", model=model, limits=Limits(steps=31), subordinates=[Agent("echo")])

    result = world.send(Session(head, saver), "go")

    assert result.status == "limited"
    assert result.text == "Not finished (limit: 31 of 31 steps)."
    # Three steps a round: the superior's model, the subordinate's run, the subordinate's model.
    assert len(model.calls) == 21


def test_agent_halted_below_is_partial_and_its_superior_ends(world: World) -> None:
    counter = Counter()
    model = ScriptedModel(
        {"head": [delegate("north", "go"), "fine"], "north": lambda _: Call("dig")}
    )
    north = Agent("north", tools=[counter.tool()])
    head = Agent("head", model=model, limits=Limits(calls=5), subordinates=[north])

    messages = world.invoke(head.compile(), TASK)["messages"]

    answer = messages[-2]
    assert answer.artifact["status"] == "partial"
    assert answer.artifact["reason"] == "limit: 5 of 5 model calls"
    assert answer.artifact["usage"] == {"model_calls": 4, "unknown_calls": 4}
    assert last(messages).response_metadata["halt"]["kind"] == "limit"
    assert len(model.calls) == 5


def bomb(counter: Counter, limits: Limits) -> Agent:
    """Return a root, 8 agents, 64 and 512 who all give work to everybody below, for ever."""
    dig = counter.tool()

    def agent(name: str, depth: int, limits: Limits | None = None) -> Agent:
        below = [agent(f"{name}{number}", depth - 1) for number in range(8 if depth else 0)]
        calls = [Call("dig"), *(delegate(each.name, "go", reset=True) for each in below)]
        model = ScriptedModel(lambda _: Reply(calls=calls))
        counter.models.append(model)
        return Agent(name, model=model, tools=[dig], subordinates=below, limits=limits or Limits())

    return agent("a", 3, limits)


@pytest.mark.parametrize("limit", sample([10], [10, 250]))
def test_a_fan_out_bomb_does_not_take_one_step_more(world: World, limit: int) -> None:
    counter = Counter()

    messages = world.invoke(bomb(counter, Limits(steps=limit)).compile(), TASK)["messages"]

    # The rest of the steps are runs of subordinates.
    assert limit / 5 <= counter.calls + counter.tools <= limit
    assert last(messages).text == f"Not finished (limit: {limit} of {limit} steps)."
    check_closed(messages)


@pytest.mark.parametrize("limit", sample([10], [10, 250]))
def test_a_fan_out_bomb_does_not_make_one_model_call_more(world: World, limit: int) -> None:
    counter = Counter()

    messages = world.invoke(bomb(counter, Limits(calls=limit)).compile(), TASK)["messages"]

    assert counter.calls == limit
    assert last(messages).text == f"Not finished (limit: {limit} of {limit} model calls)."


def test_all_conversations_of_a_halted_tree_are_closed_and_linked(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(bomb(Counter(), Limits(steps=60)), saver)

    world.send(session, "go")

    links = session.thread_store.verify(session.thread_id)
    assert {str(each.state) for each in links} == {"ok", "refused"}
    begun = [each.sub_agent_thread_id for each in links if str(each.state) == "ok"]
    for thread in [session.thread_id, *begun]:
        check_closed(session.thread_store.get(thread).messages)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_no_death_of_its_process_gives_a_tree_more_than_its_limits(
    way: str, tmp_path: Path, runaway: Forks
) -> None:
    log = tmp_path / "log.txt"
    arguments = (str(tmp_path / "t.sqlite"), str(log), way)
    deaths = 0
    while (ended := runaway.run(*arguments)).code == -signal.SIGKILL:
        deaths += 1
        assert deaths < 20

    assert ended.code == 0
    assert deaths > 1
    lines = log.read_text().splitlines()
    assert LIMITS.calls is not None
    assert LIMITS.calls / 2 < lines.count("model") <= LIMITS.calls
    assert len(lines) <= LIMITS.steps
    assert ended.returned["text"].startswith("Not finished (limit: ")


def asking(limits: Limits) -> tuple[Agent, ScriptedModel]:
    """Return an agent that asks a human before each of its model calls but the first."""

    @tool
    def ask() -> str:
        """Ask."""
        return str(interrupt("Go on?"))

    model = ScriptedModel({"head": lambda _: Call("ask")})
    return Agent("head", model=model, tools=[ask], limits=limits), model


def test_a_resume_in_another_session_goes_on_counting(world: World, tmp_path: Path) -> None:
    head, model = asking(Limits(calls=3))
    asked = 0
    with Session(head, tmp_path / "t.sqlite") as session:
        result = world.send(session, "go")
    while result.questions and asked < 10:
        asked += 1
        with Session(head, tmp_path / "t.sqlite") as session:
            result = world.answer(session, {result.questions[0].id: "yes"})

    assert asked == len(model.calls) == 3
    assert result.text == "Not finished (limit: 3 of 3 model calls)."


def test_what_a_run_has_not_used_is_there_for_the_next(world: World, tmp_path: Path) -> None:
    # A block of a hundred steps, of which each of these runs uses three.
    head, model = asking(Limits(steps=300))
    with Session(head, tmp_path / "t.sqlite") as session:
        result = world.send(session, "go")
    for _ in range(20):
        with Session(head, tmp_path / "t.sqlite") as session:
            result = world.answer(session, {result.questions[0].id: "yes"})

    assert result.questions
    assert len(model.calls) == 21


def test_what_had_begun_ends_by_itself_when_its_limit_is_used_up(
    world: World, saver: SqliteCheckpointer
) -> None:
    # Four steps: the head's thought, a run of north, its thought, and its question.
    asker, _ = asking(Limits())
    model = ScriptedModel({"head": [delegate("north", "go"), "over"], "north": [Call("ask")]})
    north = Agent("north", tools=asker.tools)
    head = Agent("head", model=model, subordinates=[north], limits=Limits(steps=4))
    session = Session(head, saver)
    [question] = world.send(session, "go").questions

    result = world.answer(session, {question.id: "yes"})

    assert result.text == "Not finished (limit: 4 of 4 steps)."
    [link] = session.thread_store.verify(session.thread_id)
    said = [str(each.text) for each in session.thread_store.get(link.sub_agent_thread_id).messages]
    assert said[2:] == ["yes", "Not finished (limit: 4 of 4 steps)."]
    assert len(model.calls) == 2


def test_every_turn_begins_at_nothing(world: World, saver: SqliteCheckpointer) -> None:
    head = digging(Counter(), Limits(calls=2))
    session = Session(head, saver)

    texts = [world.send(session, "go").text for _ in range(3)]

    assert texts == ["Not finished (limit: 2 of 2 model calls)."] * 3
    assert isinstance(head.model, ScriptedModel)
    assert len(head.model.calls) == 6


def test_tokens_are_counted_as_models_report_them(world: World, saver: SqliteCheckpointer) -> None:
    model = ScriptedModel({"head": lambda _: Reply(calls=[Call("dig")], usage=(30, 5))})
    tools = [Counter().tool()]
    head = Agent("head", model=model, tools=tools, limits=Limits(tokens=100))

    result = world.send(Session(head, saver), "go")

    assert len(model.calls) == 3
    assert result.text == "Not finished (limit: 105 of 100 tokens)."


def test_time_runs_while_a_turn_runs_and_stands_still_between(
    world: World, saver: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr("echelons.graphs.entry.monotonic", clock.now)
    head, _ = asking(Limits(seconds=10))
    model = ScriptedModel({"head": lambda _: Reply(calls=[Call("ask")], latency=4)}, clock=clock)
    head = Agent("head", model=model, tools=head.tools, limits=head.limits)
    session = Session(head, saver)

    result = world.send(session, "go")
    while result.questions:
        clock.advance(1000)
        result = world.answer(session, {result.questions[0].id: "yes"})

    assert len(model.calls) == 3
    assert result.text == "Not finished (limit: 12 of 10 seconds)."


def test_tools_beyond_the_width_are_answered_with_an_error_that_names_it(world: World) -> None:
    counter = Counter()
    calls = [Call("dig"), delegate("north", "go"), Call("dig"), Call("dig")]
    model = ScriptedModel({"head": [calls, "fine"], "north": ["done"]})
    head = Agent(
        "head",
        model=model,
        tools=[counter.tool()],
        subordinates=[Agent("north")],
        limits=Limits(width=2),
    )

    messages = world.invoke(head.compile(), TASK)["messages"]

    answers = {each.tool_call_id: each for each in messages if isinstance(each, ToolMessage)}
    refused = [answers[call["id"]] for call in messages[1].tool_calls[2:]]
    assert counter.tools == 1
    assert [(each.status, each.artifact) for each in refused] == [("error", None)] * 2
    assert {str(each.text) for each in refused} == {
        "Error: width: 2 of 2 calls side by side in one message, and 1 more is wanted; "
        "make the others in a later message"
    }
    assert last(messages).text == "fine"


def test_the_limits_of_a_tree_belong_to_its_root() -> None:
    inner = Agent("north", limits=Limits(depth=3, calls=5, width=2))

    with raises_code("inner_limits", match="north") as refused:
        Agent("head", subordinates=[inner])

    assert refused.value.limits == ("calls", "width")
    Agent("head", subordinates=[Agent("north", limits=Limits(depth=3))])


@pytest.mark.parametrize(
    ("inner", "outer", "text"),
    [(4, 7, "fine"), (7, 5, "Not finished (limit: 5 of 5 model calls).")],
)
def test_tree_in_a_graph_in_a_tree_is_within_the_limits_of_both(
    world: World, saver: SqliteCheckpointer, inner: int, outer: int, text: str
) -> None:
    counter = Counter()
    host = StateGraph(MessagesState)
    host.add_node("site", digging(counter, Limits(calls=inner)).compile())
    host.add_edge(START, "site")
    model = ScriptedModel({"top": [delegate("digger", "go"), "fine"]})
    digger = host.compile(name="digger")
    top = Agent("top", model=model, limits=Limits(calls=outer), subordinates=[digger])

    result = world.send(Session(top, saver), "go")

    assert counter.tools == 4
    assert result.text == text


def test_no_other_agent_is_asked_once_a_limit_is_reached(world: World) -> None:
    model = ScriptedModel(
        {
            "head": [delegate("", "bake bread"), "done"],
            "baker": lambda _: Call("knead", {}),
            "*": ["never asked"],
        }
    )
    below = [
        Agent(name, capabilities={"bake bread": sure})
        for name, sure in (("baker", 0.9), ("cook", 0.8), ("miller", 0.7))
    ]
    head = Agent("head", model=model, limits=Limits(calls=3), subordinates=below)

    messages = world.invoke(head.compile(), TASK)["messages"]

    [answer] = [each.artifact for each in messages if isinstance(each, ToolMessage)]
    assert (answer["status"], answer["agent"]) == ("partial", "baker")
    assert answer["reason"] == "limit: 3 of 3 model calls"
    assert "subordinate_responses" not in answer, "the others have not begun"
