"""What Echelons relies on in LangGraph and LangChain beyond their documented interfaces.

Each test tries one reliance on LangGraph alone, so a failure after an upgrade names what moved and
which module of ours has to follow. `echelons.langgraph_internals` has the names.
"""

from __future__ import annotations

import operator
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig, RunnableLambda, ensure_config
from langchain_core.tools import BaseTool, StructuredTool
from langgraph._internal._config import ensure_config as ensure_langgraph_config
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME, TASKS
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, Send, interrupt
from typing_extensions import TypedDict

from echelons.checkpoints.storage.serde import AllowlistSerializer
from echelons.graphs.inline_writes import InlineGraph
from echelons.langgraph_internals import (
    BRANCH_PREFIX,
    CHECKPOINTER_KEY,
    DELTA_COUNTERS_KEY,
    DURABILITY_KEY,
    NS_SEP,
    NULL_TASK_ID,
    OWN_CONFIG_KEYS,
    PULL,
    READ_KEY,
    RESUME_MAP_KEY,
    RESUMING_KEY,
    SCRATCHPAD_KEY,
    SEND_KEY,
    SEVERAL_WRITES_KEY,
    TASK_ID_KEY,
    TASK_PATH_KEY,
    AsyncPregelLoop,
    DeltaSnapshot,
    StreamMessagesHandler,
    SyncPregelLoop,
    advance_checkpoint_ids,
    compute_task_id,
    parent_config,
    search_where,
    supports_async,
)
from echelons.text.error_lines import describe_failure

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    seen: Annotated[list[Any], operator.add]


Builder = StateGraph[State, Any, State, State]


def one_node(node: Any) -> Builder:
    builder: Builder = StateGraph(State)
    builder.add_node("work", node)
    builder.add_edge(START, "work")
    return builder


def asking(state: State) -> State:
    return {"seen": [interrupt("first?"), interrupt("second?")]}


@pytest.fixture
def saver() -> InMemorySaver:
    return InMemorySaver()


# The ids of tasks that have written nothing: checkpoints/threads/pending_work.py


def test_the_id_of_a_task_is_known_from_the_checkpoint_before_it(saver: InMemorySaver) -> None:
    ids: dict[tuple[str, ...], str] = {}

    def note(config: RunnableConfig, name: str) -> None:
        namespace = config["configurable"]["checkpoint_ns"]
        ids[(name, *namespace.split(NS_SEP)[:-1])] = namespace.rpartition(":")[2]

    def work(state: Any, config: RunnableConfig) -> State:
        note(config, f"work{state}")
        raise GraphBubbleUp

    def fan(state: State, config: RunnableConfig) -> State:
        note(config, "fan")
        return {}

    inner: Builder = StateGraph(State)
    inner.add_node("work", work)
    inner.add_node("fan", fan)
    inner.add_edge(START, "fan")
    inner.add_conditional_edges("fan", lambda _: [Send("work", 1), Send("work", 2)], ["work"])
    outer: Builder = StateGraph(State)
    outer.add_node("begin", lambda state: {})
    outer.add_node("graph", inner.compile())
    outer.add_edge(START, "begin")
    outer.add_edge("begin", "graph")
    with pytest.raises(GraphBubbleUp):
        outer.compile(saver).invoke({"seen": []}, CONFIG)

    root = saver.get_tuple(CONFIG)
    assert root
    task = compute_task_id(root, "graph")
    below: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": f"graph:{task}"}}
    saved = saver.get_tuple(below)
    assert saved
    place = f"graph:{task}"
    sent = [compute_task_id(saved, "work", each) for each in (0, 1)]
    assert sent == [ids["work1", place], ids["work2", place]]
    fanned = {each[1] for each in ids if each[0] == "fan"}
    assert fanned == {place}


# What a graph lends to a graph that it runs: checkpoints/run_config.py


def test_a_node_finds_the_saver_and_the_way_of_storing_in_its_config(saver: InMemorySaver) -> None:
    lent: dict[str, Any] = {}

    def look(state: State, config: RunnableConfig) -> State:
        lent.update(config["configurable"])
        return {}

    graph = one_node(look).compile(saver)
    graph.invoke({"seen": []}, CONFIG, durability="exit")

    assert lent[CHECKPOINTER_KEY] is saver
    assert lent[DURABILITY_KEY] == "exit"
    assert callable(lent[READ_KEY])


def test_a_task_started_by_a_send_reads_the_state_of_its_graph_also_when_it_resumes(
    saver: InMemorySaver,
) -> None:
    """`current_request` of `nodes/tool_execution/`: the task of a root, for its tools."""
    found: list[Any] = []

    def look(given: Any, config: RunnableConfig) -> State:
        found.append((given, config["configurable"][READ_KEY](["seen"])))
        return {"seen": [interrupt("?")]}

    def start(_: State) -> State:
        return {}

    builder = one_node(start)
    builder.add_node("look", RunnableLambda(look))
    builder.add_conditional_edges("work", lambda _: [Send("look", "sent")], ["look"])
    graph = builder.compile(saver)
    graph.invoke({"seen": ["task"]}, CONFIG)
    graph.invoke(Command(resume="yes"), CONFIG)

    assert found == [("sent", {"seen": ["task"]})] * 2


def test_nested_graph_sees_that_the_run_resumes(saver: InMemorySaver) -> None:
    resuming: list[Any] = []

    def ask(state: State, config: RunnableConfig) -> State:
        resuming.append(config["configurable"].get(RESUMING_KEY))
        return {"seen": [interrupt("?")]}

    inner = one_node(ask).compile()
    graph = one_node(inner).compile(saver)
    graph.invoke({"seen": []}, CONFIG)
    graph.invoke(Command(resume="yes"), CONFIG)

    assert [bool(each) for each in resuming] == [False, True]


# The answers of a task: nodes/tool_execution/scratchpad.py


def test_the_scratchpad_of_a_task_holds_its_answers_and_counts_its_interrupts(
    saver: InMemorySaver,
) -> None:
    pads: list[tuple[list[Any], bool, bool]] = []

    def look(state: State, config: RunnableConfig) -> State:
        given = config["configurable"]
        pad = given[SCRATCHPAD_KEY]
        loose = pad.get_null_resume(False)
        pads.append((list(pad.resume), callable(pad.interrupt_counter), loose is not None))
        assert callable(given[SEND_KEY])
        return asking(state)

    graph = one_node(look).compile(saver)
    graph.invoke({"seen": []}, CONFIG)
    graph.invoke(Command(resume="one"), CONFIG)
    graph.invoke(Command(resume="two"), CONFIG)

    assert pads == [([], True, False), ([], True, True), (["one"], True, True)]


# The namespace of a call of a tree as a tool: graphs/compiled_tree.py


def test_a_task_knows_whether_a_send_began_it_and_numbers_the_graphs_that_it_runs(
    saver: InMemorySaver,
) -> None:
    begun: list[tuple[bool, list[int], bool]] = []

    def look(state: State, config: RunnableConfig) -> State:
        given = config["configurable"]
        count = given[SCRATCHPAD_KEY].subgraph_counter
        is_pulled = config["metadata"][TASK_PATH_KEY][0] == PULL
        own = given["checkpoint_ns"] == f"look:{given[TASK_ID_KEY]}"
        begun.append((is_pulled, [count(), count()], own))
        return {"seen": []}

    builder = StateGraph(State)
    builder.add_node("look", look)
    builder.add_edge(START, "look")
    builder.add_conditional_edges(
        "look", lambda _: [Send("look", {"seen": []})] if len(begun) == 1 else END, ["look", END]
    )
    builder.compile(saver).invoke({"seen": []}, CONFIG)

    assert begun == [(True, [0, 1], True), (False, [0, 1], True)]


def test_answers_by_id_stand_under_a_key_of_their_own(saver: InMemorySaver) -> None:
    by_id: list[Any] = []

    def look(state: State, config: RunnableConfig) -> State:
        by_id.append(config["configurable"].get(RESUME_MAP_KEY))
        return {"seen": [interrupt("?")]}

    graph = one_node(look).compile(saver)
    question = graph.invoke({"seen": []}, CONFIG)[INTERRUPT][0]
    graph.invoke(Command(resume={question.id: "yes"}), CONFIG)

    assert by_id[1] == {question.id: "yes"}


def test_the_id_of_a_question_is_made_of_its_namespace_and_its_place(saver: InMemorySaver) -> None:
    namespaces: list[str] = []

    def look(state: State, config: RunnableConfig) -> State:
        namespaces.append(config["configurable"]["checkpoint_ns"])
        return asking(state)

    graph = one_node(look).compile(saver)
    first = graph.invoke({"seen": []}, CONFIG)[INTERRUPT][0]
    second = graph.invoke(Command(resume="one"), CONFIG)[INTERRUPT][0]

    assert first.id == Interrupt.from_ns(None, namespaces[0]).id
    assert second.id == Interrupt.from_ns(None, f"{namespaces[0]}{NS_SEP}1").id


# A stored run without its graph: checkpoints/threads/pending_work.py, checkpoints/run_config.py


def test_sends_wait_in_the_channel_of_tasks_and_nodes_in_channels_of_their_own(
    saver: InMemorySaver,
) -> None:
    builder: Builder = StateGraph(State)
    builder.add_node("plan", lambda state: {})
    builder.add_node("work", asking)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda state: [Send("work", {"seen": []})], ["work"])
    graph = builder.compile(saver)
    assert f"{BRANCH_PREFIX}work" in graph.channels

    graph.invoke({"seen": []}, CONFIG, interrupt_before=["plan"])
    waiting = saver.get_tuple(CONFIG)
    assert waiting is not None
    assert f"{BRANCH_PREFIX}plan" in waiting.checkpoint["channel_values"]

    graph.invoke(None, CONFIG)
    sent = saver.get_tuple(CONFIG)
    assert sent is not None
    assert [each.node for each in sent.checkpoint["channel_values"][TASKS]] == ["work"]
    assert [channel for _, channel, _ in sent.pending_writes or ()] == [INTERRUPT]


def test_an_answer_from_outside_is_written_under_the_null_task(saver: InMemorySaver) -> None:
    def fail(state: State) -> State:
        interrupt("?")
        raise ValueError("after the answer")

    graph = one_node(fail).compile(saver)
    graph.invoke({"seen": []}, CONFIG)
    with pytest.raises(ValueError, match="after the answer"):
        graph.invoke(Command(resume="yes"), CONFIG)

    stored = saver.get_tuple(CONFIG)
    assert stored is not None
    assert (NULL_TASK_ID, RESUME, "yes") in (stored.pending_writes or ())


def test_a_namespace_is_the_node_and_the_task_of_each_graph_on_the_way(
    saver: InMemorySaver,
) -> None:
    inner = one_node(asking).compile()
    middle = one_node(inner).compile()
    one_node(middle).compile(saver).invoke({"seen": []}, CONFIG)

    namespaces = {each.config["configurable"]["checkpoint_ns"] for each in saver.list(CONFIG)}
    deepest = max(namespaces, key=len).split(NS_SEP)
    assert [part.partition(":")[0] for part in deepest] == ["work", "work"]


# Streams: graphs/entry.py, echelons/runtime/run_events.py


def test_a_stream_shows_interrupts_under_their_own_key(saver: InMemorySaver) -> None:
    graph = one_node(asking).compile(saver)

    [chunk] = graph.stream({"seen": []}, CONFIG, stream_mode="updates")

    assert [each.value for each in chunk[INTERRUPT]] == ["first?"]


def test_a_debug_stream_shows_several_writes_of_one_task_under_one_key() -> None:
    updates: list[Command[Any]] = [Command(update={"seen": [1]}), Command(update={"seen": [2]})]
    graph = one_node(lambda state: updates).compile()

    chunks: list[Any] = list(graph.stream({"seen": []}, stream_mode="tasks"))

    assert chunks[-1]["result"] == {"seen": {SEVERAL_WRITES_KEY: [[1], [2]]}}


# Nested graphs: nodes/base_node.py, graphs/nested_graphs.py, graphs/compiled_tree.py


def test_a_graph_in_the_dependencies_of_a_node_is_found() -> None:
    inner = one_node(asking).compile()

    class Node(RunnableLambda[Any, Any]):
        @property
        def deps(  # pyright: ignore[reportIncompatibleVariableOverride]  # theirs is cached
            self,
        ) -> list[Any]:
            return [inner]

    graph = one_node(Node(lambda state: state)).compile()

    assert [found for _, found in graph.get_subgraphs()] == [inner]


def test_a_compiled_graph_is_made_again_of_its_attributes() -> None:
    compiled = one_node(lambda state: {"seen": [1]}).compile()

    again: Any = CompiledStateGraph(**compiled.__dict__)

    assert again.invoke({"seen": []}) == {"seen": [1]}


def test_a_graph_is_entered_at_a_node_by_its_channel() -> None:
    builder: Builder = StateGraph(State)
    for name in ("first", "second"):
        builder.add_node(name, lambda state, name=name: {"seen": [name]})
        builder.add_edge(name, END)
    builder.add_edge(START, "first")
    compiled = builder.compile()
    channels = ["seen", *(f"{BRANCH_PREFIX}{name}" for name in builder.nodes)]

    direct: Any = CompiledStateGraph(**{**compiled.__dict__, "input_channels": channels})

    assert direct.invoke({"seen": [], f"{BRANCH_PREFIX}second": None}) == {"seen": ["second"]}


# The loop of a run: graphs/inline_writes.py


def test_a_synchronous_run_looks_its_loop_up_by_name() -> None:
    stream: Any = Pregel.stream

    assert stream.__globals__[SyncPregelLoop.__name__] is SyncPregelLoop


def test_a_run_in_an_event_loop_looks_its_loop_up_by_name() -> None:
    stream: Any = Pregel.astream

    assert stream.__globals__[AsyncPregelLoop.__name__] is AsyncPregelLoop


def test_a_loop_of_ours_stores_in_the_calling_thread() -> None:
    threads: set[int] = set()

    class Watched(InMemorySaver):
        def put(self, *args: Any, **kwargs: Any) -> RunnableConfig:
            threads.add(threading.get_ident())
            return super().put(*args, **kwargs)

        def put_writes(self, *args: Any, **kwargs: Any) -> None:
            threads.add(threading.get_ident())
            super().put_writes(*args, **kwargs)

    compiled = one_node(asking).compile(Watched())
    graph: Any = InlineGraph(**compiled.__dict__)
    graph.invoke({"seen": []}, CONFIG, durability="sync")

    assert threads == {threading.get_ident()}


# The tokens of a session: graphs/token_stream.py


def test_the_handler_of_streamed_messages_is_the_last_one_that_is_inherited() -> None:
    managers: list[Any] = []

    def look(state: State, config: RunnableConfig) -> State:
        managers.append(config.get("callbacks"))
        return {}

    given: RunnableConfig = {"callbacks": [BaseCallbackHandler()]}
    list(one_node(look).compile().stream({}, given, stream_mode=["messages"], subgraphs=True))
    last = managers[0].inheritable_handlers[-1]

    assert type(last) is StreamMessagesHandler
    assert callable(last.stream)
    assert last.subgraphs is True
    assert last.metadata == {}


# Updates of a stored state: graphs/nested_graphs.py


def test_the_config_around_an_update_of_a_state_reaches_its_checkpoint(
    saver: InMemorySaver,
) -> None:
    graph = one_node(lambda state: {}).compile(saver)
    graph.invoke({"seen": []}, CONFIG)

    token = parent_config.set({"metadata": {"agent": "scout"}})
    try:
        graph.update_state(CONFIG, {"seen": [1]})
    finally:
        parent_config.reset(token)

    stored = saver.get_tuple(CONFIG)
    assert stored is not None
    assert dict(stored.metadata)["agent"] == "scout"


# Delta channels: checkpoints/delta_channels.py and what reads their rows


def append(before: list[int], writes: Sequence[list[int]]) -> list[int]:
    return [*before, *(each for write in writes for each in write)]


class Deltas(TypedDict, total=False):
    seen: Annotated[list[int], DeltaChannel(append, snapshot_frequency=3)]


@pytest.mark.filterwarnings("ignore:.*DeltaChannel.*")
def test_a_delta_channel_is_stored_whole_now_and_then_and_counted_in_between(
    saver: InMemorySaver,
) -> None:
    builder: StateGraph[Deltas, Any, Deltas, Deltas] = StateGraph(Deltas)
    builder.add_node("work", lambda state: {"seen": [1]})
    builder.add_edge(START, "work")
    graph = builder.compile(saver)
    for _ in range(4):
        graph.invoke({"seen": [0]}, CONFIG)

    stored = list(saver.list(CONFIG))
    held = [each.checkpoint["channel_values"].get("seen") for each in stored]
    assert any(isinstance(each, DeltaSnapshot) for each in held)
    assert any(each is None for each in held)
    assert any("seen" in (each.metadata.get(DELTA_COUNTERS_KEY) or {}) for each in stored)


# Storing: checkpoints/storage


@pytest.fixture
def sqlite() -> Iterator[SqliteSaver]:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    yield SqliteSaver(connection)
    connection.close()


def test_the_tables_of_the_sqlite_saver_have_these_columns(sqlite: SqliteSaver) -> None:
    assert not sqlite.is_setup
    sqlite.setup()

    columns = {
        table: [row[1] for row in sqlite.conn.execute(f"PRAGMA table_info({table})")]
        for table in ("checkpoints", "writes")
    }
    place = ["thread_id", "checkpoint_ns", "checkpoint_id"]
    assert columns == {
        "checkpoints": [*place, "parent_checkpoint_id", "type", "checkpoint", "metadata"],
        "writes": [*place, "task_id", "task_path", "idx", "channel", "type", "value"],
    }


def test_the_conditions_of_a_listing_are_a_clause_and_its_values() -> None:
    where, values = search_where(CONFIG, {"agent": "scout"}, None)

    assert where.startswith("WHERE ")
    assert where.count("?") == len(values) == 2


def test_checkpoint_ids_follow_the_last_one_that_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_ids, "_last_v6_timestamp", None)
    before = empty_checkpoint()["id"]
    future = ((UUID(before).int >> 80) << 12) + 10**12

    advance_checkpoint_ids(future)

    made = UUID(empty_checkpoint()["id"]).int
    assert ((made >> 80) << 12 | (made >> 64) & 0xFFF) > future


@pytest.mark.parametrize("value", [Send("work", {"n": 1}), Interrupt("?", id="i"), {"a": [1, 2]}])
def test_what_ours_writes_langgraph_reads(value: Any) -> None:
    kind, data = AllowlistSerializer().dumps_typed(value)

    assert JsonPlusSerializer().loads_typed((kind, data)) == value


# Errors and tools: echelons/text/error_lines.py, nodes/act.py


def test_an_interrupt_is_known_by_the_name_of_its_base() -> None:
    assert GraphInterrupt.__mro__[1] is GraphBubbleUp
    with pytest.raises(GraphInterrupt):
        describe_failure(GraphInterrupt(), "matcher_failed")


def test_a_tool_has_an_async_form_where_it_brings_one() -> None:
    async def acall(x: int) -> int:
        """Count."""
        return x

    def call(x: int) -> int:
        """Count."""
        return x

    class Own(BaseTool):
        name: str = "own"
        description: str = "Counts."

        def _run(self, *args: Any, **kwargs: Any) -> str:
            return threading.current_thread().name

    assert supports_async(StructuredTool.from_function(coroutine=acall))
    assert not supports_async(StructuredTool.from_function(call))
    assert not supports_async(Own())


def test_langchain_copies_one_key_of_a_configurable_into_the_metadata() -> None:
    given = {"model": "m", "api_key": "k", "tenant": "acme", "thread_id": "t"}

    assert ensure_config({"configurable": given})["metadata"] == {"model": "m"}


def test_langgraph_stores_keys_of_a_configurable_only_under_names_that_a_session_refuses() -> None:
    names = ("run_id", "task_id", "assistant_id", "graph_id", "thread_id", "checkpoint_ns")
    given = {**dict.fromkeys(names, "x"), "tenant": "acme"}

    stored = ensure_langgraph_config({"configurable": given})["metadata"]

    assert {*names} <= OWN_CONFIG_KEYS
    assert stored.keys() == {*names}
