"""A foreign graph's own state: it goes on with its thread, and its tool calls are in the trace."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt
from typer.testing import CliRunner
from typing_extensions import TypedDict

from echelons import Agent, Session, SqliteCheckpointer
from echelons.cli.app import app
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.failure_ids import without_conversation_ids, without_ids
from tests.told_lines import without_told

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


pytestmark = pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Failures of subordinates are logged; here they are wanted."""
    with caplog.at_level(logging.CRITICAL):
        yield


class Notebook(MessagesState):
    """Messages, a counter with a reducer, and a list that is replaced."""

    asked: Annotated[int, operator.add]
    notes: list[str]


class Hidden(TypedDict):
    """What only the nodes share."""

    secret: str


def append(held: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*held, *(each for write in writes for each in write)]


class Deltas(TypedDict):
    """Messages and notes of which only the changes are stored."""

    messages: Annotated[list[Any], DeltaChannel(append)]
    asked: Annotated[int, operator.add]
    notes: Annotated[list[str], DeltaChannel(append)]


class Plain(TypedDict):
    """Messages that each write replaces."""

    messages: list[AnyMessage]
    asked: Annotated[int, operator.add]
    notes: list[str]


def counter(state: Any = Notebook, **options: Any) -> Any:
    """Return a graph that counts its requests, in a state of its own."""

    def count(given: Any) -> dict[str, Any]:
        return {"asked": 1, "secret": given.get("secret", "") + "s"}

    def note(given: Any) -> dict[str, Any]:
        task = str(given["messages"][-1].text)
        if task == "fail":
            raise ValueError("no more ink")
        if task == "ask":
            task = str(interrupt("What?"))
        held = given.get("notes") or []
        return {"notes": [task] if state is Deltas else [*held, task]}

    def tell(given: Any) -> dict[str, Any]:
        said = f"{given['asked']} {'+'.join(given['notes'])} {given['secret']}"
        seen = len([each for each in given["messages"] if each.type == "human"])
        return {"messages": [AIMessage(f"{said} of {seen}")]}

    class Whole(state, Hidden):  # type: ignore[misc]  # a different state for each test
        pass

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Whole, input_schema=state)
    nodes: dict[str, Any] = {"count": count, "note": note, "tell": tell}
    for name, node in nodes.items():
        builder.add_node(name, node, input_schema=Whole)
    builder.add_edge(START, "count")
    builder.add_edge("count", "note")
    builder.add_edge("note", "tell")
    builder.add_edge("tell", END)
    return builder.compile(name="counter", **options)


def open_session(graph: Any, saver: Any, calls: Sequence[Any]) -> Session:
    """Return a session of three levels, whose middle makes the given calls in each turn."""
    mid = Agent("mid", subordinates=[graph])
    model = ScriptedModel({"head": [delegate("mid", "go"), "over"], "mid": [*calls, "done"]})
    return Session(Agent("head", model=model, subordinates=[mid]), saver)


def list_answers(session: Session) -> list[str]:
    """Return the answers that the middle has got."""
    [mid] = session.trace().subordinates
    messages: Sequence[BaseMessage] = session.thread_store.get(mid.thread_id).messages
    texts = [without_told(each.text) for each in messages if isinstance(each, ToolMessage)]
    return [*map(without_conversation_ids, texts)]


@pytest.mark.parametrize("state", [Notebook, Deltas, Plain])
@pytest.mark.parametrize("own", [False, True], ids=["the tree's", "its own saver"])
def test_a_second_request_sees_the_state_of_the_first(
    world: World, any_saver: BaseCheckpointSaver[Any], state: Any, own: bool
) -> None:
    graph = counter(state, checkpointer=InMemorySaver() if own else None)
    calls = [delegate("counter", task) for task in ("a", "b", "c")]
    session = open_session(graph, any_saver, calls)

    world.send(session, "go")

    assert list_answers(session) == ["1 a s of 1", "2 a+b ss of 2", "3 a+b+c sss of 3"]


def test_a_thread_that_is_continued_in_another_process_has_its_state(
    world: World, tmp_path: Path
) -> None:
    database = tmp_path / "notes.sqlite"
    with open_session(counter(), database, [delegate("counter", "a")]) as first:
        world.send(first, "go")
    with open_session(counter(), database, [delegate("counter", "b")]) as second:
        world.send(second, "again")
        answers = list_answers(second)

    assert answers == ["1 a s of 1", "2 a+b ss of 2"]


def test_a_thread_of_its_own_begins_without_state_and_shares_none(
    world: World, saver: SqliteCheckpointer
) -> None:
    both = [delegate("counter", "a", reset=True), delegate("counter", "x", reset=True)]
    session = open_session(counter(), saver, [both, delegate("counter", "y")])

    world.send(session, "go")

    answers = list_answers(session)
    assert answers[:2] == ["1 a s of 1", "1 x s of 1"]
    assert answers[2] in ("2 a+y ss of 2", "2 x+y ss of 2")


def test_after_a_failure_it_goes_on_from_where_it_failed(
    world: World, any_saver: BaseCheckpointSaver[Any]
) -> None:
    calls = [delegate("counter", task) for task in ("a", "fail", "b", "c")]
    session = open_session(counter(), any_saver, calls)

    world.send(session, "go")

    first, failed, *others = list_answers(session)
    assert (first, without_ids(failed)) == ("1 a s of 1", "[unable] ValueError: no more ink")
    assert others == ["3 a+b sss of 3", "4 a+b+c ssss of 4"]


def test_a_request_after_a_question_sees_the_state_and_its_own_task(
    world: World, any_saver: BaseCheckpointSaver[Any]
) -> None:
    calls = [delegate("counter", task) for task in ("a", "ask", "b")]
    session = open_session(counter(), any_saver, calls)

    [question] = world.send(session, "go").questions
    world.answer(session, {question.id: "asked"})

    assert list_answers(session) == ["1 a s of 1", "2 a+asked ss of 2", "3 a+asked+b sss of 3"]


def test_a_fork_goes_on_from_the_state_where_it_begins(
    world: World, any_saver: BaseCheckpointSaver[Any]
) -> None:
    model = ScriptedModel([delegate("counter", "a"), "over"])
    graph = Agent("head", model=model, subordinates=[counter()]).compile(any_saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    given = {"messages": [("user", "go")]}

    def run(input: Any, config: Any) -> list[str]:
        messages = world.invoke(graph, input, config)["messages"]
        return [str(each.text) for each in messages if isinstance(each, ToolMessage)]

    run(given, config)
    after_one = world.do(graph, "get_state", config).config
    twice = ["1 a s of 1", "2 a+a ss of 2"]
    assert run(given, config) == twice
    states = world.do(graph, "get_state_history", config)
    replayed = next(each.config for each in states if each.next == ("delegate",))
    assert run(None, replayed) == twice
    assert run(given, after_one) == twice
    assert run(given, config) == [*twice, "3 a+a+a sss of 3"]


class Dying(InMemorySaver):
    """A saver of a process that dies when the second request has its state, and has not begun."""

    died = False

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        namespace = config["configurable"].get("checkpoint_ns", "")
        copied = any(
            "carried" in each.metadata
            for each in self.list({"configurable": {**config["configurable"]}})
        )
        if copied and "run:" in namespace and not self.died:
            self.died = True
            raise KeyboardInterrupt
        return super().put(config, checkpoint, metadata, new_versions)


def test_a_process_that_dies_before_the_graph_begins_repeats_no_answer() -> None:
    saver = Dying()
    calls = [delegate("counter", "a"), delegate("counter", "b")]
    session = open_session(counter(), saver, calls)

    with pytest.raises(KeyboardInterrupt):
        session.send("go").result()
    session.resume().result()

    assert saver.died
    assert list_answers(session) == ["1 a s of 1", "2 a+b ss of 2"]


def test_pruning_keeps_the_state(world: World, saver: SqliteCheckpointer) -> None:
    session = open_session(counter(Deltas), saver, [delegate("counter", "a")])

    world.send(session, "go")
    saver.prune([session.thread_id], strategy="keep_latest")
    world.send(session, "again")

    assert list_answers(session) == ["1 a s of 1", "2 a+a ss of 2"]
    assert saver.check().faults == ()


def pay(amount: int) -> str:
    """Pay an amount."""
    if amount == 100:
        return f"{interrupt('Pay 100?')} {amount}"
    if amount > 100:
        raise ValueError("too much")
    return f"paid {amount}"


def payer(schema: Any = MessagesState) -> Any:
    """Return a graph of a model and a tool that raises for large amounts."""
    replies = {
        "small": Reply("", [Call("pay", {"amount": 5})]),
        "round": Reply("", [Call("pay", {"amount": 100})]),
        "large": Reply("", [Call("pay", {"amount": 500})]),
    }

    def think(messages: Sequence[BaseMessage]) -> Any:
        open_calls = {c["id"] for m in messages if isinstance(m, AIMessage) for c in m.tool_calls}
        answered = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
        if open_calls - answered:  # as providers do
            raise ValueError(f"calls without an answer: {open_calls - answered}")
        last = messages[-1]
        return replies.get(str(last.text), f"{last.type} {last.text}, {len(answered)} calls")

    model = ScriptedModel(think)

    def reason(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def route(state: Any) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(schema)
    builder.add_node("think", reason)
    builder.add_node("tools", ToolNode([pay], handle_tool_errors=False))
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", route, ["tools", END])
    builder.add_edge("tools", "think")
    return builder.compile(name="payer")


def test_a_call_that_was_cut_off_is_answered_before_the_next_request(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [delegate("payer", task) for task in ("small", "large", "hello")]
    session = open_session(payer(), saver, calls)

    world.send(session, "go")

    first, failed, third = list_answers(session)
    assert without_ids(failed) == "[unable] ValueError: too much"
    assert (first, third) == ("tool paid 5, 1 calls", "human hello, 2 calls")


# Its tool calls


def list_texts(session: Session) -> list[str]:
    """Return the conversation of the graph, its calls in brackets."""
    [mid] = session.trace().subordinates
    thread = session.thread_store.get(mid.subordinates[0].thread_id)
    texts = []
    for each in thread.messages:
        calls = each.tool_calls if isinstance(each, AIMessage) else ()
        texts += [str(each.text), *(f"[{call['args']['amount']}]" for call in calls)]
    return [text for text in texts if text]


def list_tools(session: Session) -> tuple[str, ...]:
    """Return the tool calls of the graph in the trace."""
    [mid] = session.trace().subordinates
    return mid.subordinates[0].tools


@pytest.mark.parametrize("state", [MessagesState, Deltas])
def test_the_tool_calls_of_a_graph_are_in_the_trace_each_once(
    world: World, any_saver: BaseCheckpointSaver[Any], state: Any
) -> None:
    calls = [delegate("payer", task) for task in ("small", "hello", "small")]
    session = open_session(payer(state), any_saver, calls)

    world.send(session, "go")

    assert list_tools(session) == ("pay", "pay")
    first = ["small", "[5]", "paid 5", "tool paid 5, 1 calls"]
    hello = ["hello", "human hello, 1 calls"]
    again = ["small", "[5]", "paid 5", "tool paid 5, 2 calls"]
    assert list_texts(session) == [*first, *hello, *again]
    [mid] = session.trace().subordinates
    assert "[pay, pay]" in session.trace().text
    events = world.do(session.thread_store, "events", mid.subordinates[0].thread_id)
    intents = [event.data["intent"] for event in events if event.kind == "tool_call"]
    assert intents == ["pay", "pay"]
    assert all(event.paired_with for event in events if event.kind == "tool_call")
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))


def test_the_calls_of_a_request_that_failed_or_waits_are_in_the_trace(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [delegate("payer", task) for task in ("large", "round", "hello")]
    session = open_session(payer(), saver, calls)

    [question] = world.send(session, "go").questions
    assert list_tools(session) == ("pay", "pay")
    assert list_texts(session) == ["large", "[500]", "round", "not run", "[100]"]
    world.answer(session, {question.id: "yes"})

    asked = ["round", "not run", "[100]", "yes 100", "tool yes 100, 2 calls"]
    assert list_texts(session) == ["large", "[500]", *asked, "hello", "human hello, 2 calls"]


def test_the_calls_of_a_graph_inside_it_are_in_the_trace(
    world: World, saver: SqliteCheckpointer
) -> None:
    inner = payer()

    def run_inner(state: MessagesState) -> dict[str, Any]:
        said = inner.invoke({"messages": [HumanMessage("small")]})
        return {"messages": [said["messages"][-1]]}

    builder = StateGraph(MessagesState)
    builder.add_node("shared", payer())
    builder.add_node("apart", run_inner)
    builder.add_edge(START, "shared")
    builder.add_edge("shared", "apart")
    builder.add_edge("apart", END)
    session = open_session(builder.compile(name="bank"), saver, [delegate("bank", "small")])

    world.send(session, "go")

    assert list_tools(session) == ("pay", "pay")


def test_a_tree_in_a_graph_leaves_the_links_of_the_trace_whole(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: Any = {"inner": [delegate("deep", "dig"), "dug"], "deep": ["deep enough"]}
    inner = Agent("inner", model=ScriptedModel(scripts), subordinates=[Agent("deep")])
    builder = StateGraph(MessagesState)
    builder.add_node("tree", inner.compile())
    builder.add_edge(START, "tree")
    builder.add_edge("tree", END)
    calls = [delegate("host", "one"), delegate("host", "two")]
    session = open_session(builder.compile(name="host"), saver, calls)

    world.send(session, "go")

    links = session.thread_store.verify(session.thread_id)
    assert [str(link.state) for link in links] == ["ok", "ok"]


def test_the_command_line_shows_the_tool_calls_of_a_graph(tmp_path: Path) -> None:
    database = tmp_path / "bank.sqlite"
    with open_session(payer(), database, [delegate("payer", "small")]) as session:
        session.send("go").result()
        [mid] = session.trace().subordinates
    thread = mid.subordinates[0].thread_id
    run = CliRunner().invoke

    shown = run(app, ["show", thread, "--db", str(database)]).stdout
    traced = run(app, ["trace", "--db", str(database)]).stdout

    assert "pay" in shown
    assert "paid 5" in shown
    assert "[pay]" in traced
