"""An agent is compiled once, and each of its graphs and sessions has options of its own."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any
from weakref import ref

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolRuntime
from langgraph.store.memory import InMemoryStore

from echelons import Agent, Session, SqliteCheckpointer
from echelons.capabilities import ModelDeriver
from echelons.delegation.policy import DelegationPolicy
from echelons.testing import Call, Reply, ScriptedModel, delegate

TASK: Any = {"messages": [("user", "plan")]}


@tool
def tell(runtime: ToolRuntime[Any]) -> str:
    """Tell whose session it is."""
    assert runtime.store is not None
    item = runtime.store.get(("whose",), "session")
    assert item is not None
    if runtime.context == "fails":
        raise ValueError("key-of-fails")
    return f"{runtime.context}, {item.value['name']}, {runtime.config['configurable']['name']}"


def tree() -> tuple[Agent, ScriptedModel]:
    """Return a tree of three levels whose lowest agent tells what its session is given."""
    model = ScriptedModel(
        {
            "head": [delegate("days", "one day"), "planned"],
            "days": [delegate("eat", "dinner"), "day done"],
            "eat": [Call("tell"), "told"],
        }
    )
    days = Agent("days", subordinates=[Agent("eat", tools=[tell])])
    return Agent("head", model=model, subordinates=[days]), model


def plain() -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(
        {"head": [delegate("days", "x"), "end"], "days": [delegate("eat", "y"), "."], "eat": ["z"]}
    )
    days = Agent("days", subordinates=[Agent("eat")])
    return Agent("head", model=model, subordinates=[days]), model


class Starts(BaseCallbackHandler):
    """Counts the calls of models."""

    def __init__(self) -> None:
        self.count = 0

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        """Count one."""
        self.count += 1


def store(name: str) -> InMemoryStore:
    kept = InMemoryStore()
    kept.put(("whose",), "session", {"name": name})
    return kept


def listed(session: Session) -> list[str]:
    return [each.text for each in session.thread_store.get(session.thread_id).messages]


def bound(model: ScriptedModel) -> int:
    """Return how many levels have been compiled with the model."""
    return len(model.bindings)


def test_each_level_is_compiled_once_for_all_sessions(tmp_path: Path) -> None:
    agent, model = plain()
    for name in ("one", "other", "third"):
        with Session(agent, tmp_path / f"{name}.sqlite") as session:
            assert session.send("plan").result().text == "end"

    assert bound(model) == 3
    assert agent.compile().invoke(TASK)["messages"][-1].text == "end"
    assert bound(model) == 3


async def test_so_it_is_in_an_event_loop(tmp_path: Path) -> None:
    agent, model = plain()
    for name in ("one", "other", "third"):
        async with Session(agent, tmp_path / f"{name}.sqlite") as session:
            assert (await (await session.asend("plan")).result()).text == "end"

    assert bound(model) == 3


def test_a_changed_copy_of_an_agent_is_compiled_for_itself() -> None:
    agent, model = plain()
    agent.compile().invoke(TASK)

    changed = replace(agent, prompt="Be brief.")
    changed.compile().invoke(TASK)

    assert bound(model) == 6
    assert copy.deepcopy(agent) is agent
    assert "Be brief." in model.calls[-1].messages[0].text


def test_a_compiled_agent_can_be_pickled_as_before() -> None:
    agent = Agent("head", subordinates=[Agent("eat")])
    agent.compile().invoke(TASK)

    assert pickle.loads(pickle.dumps(agent)).subordinates[0].name == "eat"


def test_graphs_of_one_agent_have_their_own_nodes_savers_and_schemas(tmp_path: Path) -> None:
    agent, _ = plain()
    saver = SqliteCheckpointer(":memory:")

    one, other = agent.compile(saver, context_schema=dict), agent.compile()
    one.nodes.pop("delegate")
    one.channels.pop("heads")

    assert "delegate" in other.nodes
    assert "heads" in other.channels
    assert (one.checkpointer, other.checkpointer) == (saver, None)
    assert (one.context_schema, other.context_schema) == (dict, None)
    assert agent.compile().invoke(TASK)["messages"][-1].text == "end"


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_an_edit_of_one_graph_reaches_no_other(saver: Any) -> None:
    agent, _ = plain()

    one: Any = agent.compile(saver, context_schema=dict)
    one.builder.add_node("extra", lambda state: {})
    one.builder.add_edge("extra", "delegate")
    one.interrupt_before_nodes.append("reason")

    other = agent.compile(saver)
    assert "extra" not in other.builder.nodes
    assert "extra" not in {start for start, _ in other.builder.edges}
    assert other.interrupt_before_nodes == []
    assert (one.builder.context_schema, other.builder.context_schema) == (dict, None)
    config: Any = {"configurable": {"thread_id": "trip"}}
    assert other.invoke(TASK, config)["messages"][-1].text == "end"


def test_sessions_side_by_side_keep_their_options_apart(tmp_path: Path) -> None:
    agent, _ = tree()
    begin, names = Barrier(8), [f"s{number}" for number in range(8)]
    watchers = {name: Starts() for name in names}

    def run(name: str) -> list[str]:
        with Session(
            agent,
            tmp_path / f"{name}.sqlite",
            store=store(name),
            context=name,
            configurable={"name": name},
            callbacks=[watchers[name]],
        ) as session:
            begin.wait()
            events = [each for _ in range(2) for each in session.send("plan")]
            return [each.content for each in events if each.kind == "tool_result"]

    with ThreadPoolExecutor(8) as threads:
        told = dict(zip(names, threads.map(run, names), strict=True))

    assert told == {name: [f"{name}, {name}, {name}"] * 2 for name in names}
    assert {each.count for each in watchers.values()} == {12}


def test_each_session_has_its_own_redactor(tmp_path: Path, caplog: Any) -> None:
    agent, _ = tree()
    answers = []
    for name, redactor in (("one", str), ("other", lambda text: text.replace("key", "***"))):
        with Session(
            agent,
            tmp_path / f"{name}.sqlite",
            store=store(name),
            context="fails",
            configurable={"name": name},
            redactor=redactor,
        ) as session:
            events = [each.content for each in session.send("plan") if each.kind == "tool_result"]
            answers += events

    assert ["key-of-fails" in each for each in answers] == [True, False]
    assert "***-of-fails" in answers[1]


def test_two_databases_with_threads_of_one_name_never_share_a_past(tmp_path: Path) -> None:
    def counts(messages: Sequence[BaseMessage]) -> str:
        return ", ".join(each.text for each in messages if each.type == "human")

    below = Agent("eat", model=ScriptedModel(counts))

    def said(given: Sequence[BaseMessage]) -> Any:
        last = given[-1]
        return last.text if last.type == "tool" else delegate("eat", last.text)

    agent = Agent("head", model=ScriptedModel(said), subordinates=[below])
    with (
        Session(agent, tmp_path / "one.sqlite", thread="trip") as one,
        Session(agent, tmp_path / "other.sqlite", thread="trip") as other,
    ):
        for number in range(3):
            one.send(f"a{number}").result()
            other.send(f"b{number}").result()

        assert one.thread_id == other.thread_id
        assert listed(one)[-1] == "a0, a1, a2"
        assert listed(other)[-1] == "b0, b1, b2"


@pytest.mark.parametrize("drop", ["agent", "session"])
def test_what_is_dropped_is_collected(drop: str, tmp_path: Path) -> None:
    def ask(messages: Sequence[BaseMessage]) -> Reply:
        return Reply('{"capabilities": [{"name": "dinner", "confidence": 0.8}]}')

    def head(messages: Sequence[BaseMessage]) -> Any:
        return Call("call_subordinate", {"message": "dinner"}) if len(messages) < 2 else "end"

    deriver = ScriptedModel(ask)
    model = ScriptedModel({"head": head, "*": ["fine"]})
    agent = Agent(
        "head",
        guidance="",
        model=model,
        subordinates=[Agent("ann"), Agent("bob")],
        delegation=DelegationPolicy(deriver=ModelDeriver(deriver)),
    )
    session = Session(agent, tmp_path / "t.sqlite")
    # The second task continues the thread of the first, whose past is then kept.
    for _ in range(2):
        session.send("dinner").result()
    session.close()
    kept = ref(model if drop == "agent" else session.graph.checkpointer)

    if drop == "agent":
        del agent, model, head
    del session
    gc.collect()

    assert kept() is None


def test_what_a_model_derives_is_stored_in_each_database(tmp_path: Path) -> None:
    def ask(messages: Sequence[BaseMessage]) -> Reply:
        return Reply('{"capabilities": [{"name": "dinner", "confidence": 0.8}]}')

    def build(deriver: ScriptedModel) -> Agent:
        head: Callable[..., Any] = lambda messages: (  # noqa: E731
            Call("call_subordinate", {"message": "dinner"}) if len(messages) < 2 else "end"
        )
        return Agent(
            "head",
            guidance="",
            model=ScriptedModel({"head": head, "*": ["fine"]}),
            subordinates=[Agent("ann"), Agent("bob")],
            delegation=DelegationPolicy(deriver=ModelDeriver(deriver)),
        )

    first, later = ScriptedModel(ask), ScriptedModel(ask)
    agents = build(first), build(later)
    for agent in agents:
        for name in ("one", "other"):
            with Session(agent, tmp_path / f"{name}.sqlite") as session:
                session.send("dinner").result()

    assert (len(first.calls), len(later.calls)) == (6, 0)
