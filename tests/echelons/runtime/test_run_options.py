"""A session passes a store, a context, a configurable, callbacks and tags to every level."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler, CallbackManager
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config, get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolRuntime
from langgraph.runtime import get_runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt
from pydantic import BaseModel

from echelons import Agent, Result, Session, SqliteCheckpointer, ThreadStore
from echelons.errors import InvalidInput
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code

NAMES = ("head", "mid", "leaf")
SECRET = "sk-very-secret-4711"


@dataclass(frozen=True)
class Customer:
    name: str


@dataclass
class Seen:
    """What each level's tools have read."""

    facts: dict[str, list[Any]] = field(default_factory=dict)

    def note(self, agent: str, *facts: Any) -> None:
        self.facts.setdefault(agent, []).extend(facts)


def look(seen: Seen, name: str) -> list[Any]:
    def injected(
        key: str,
        store: Annotated[BaseStore, InjectedStore()],
        runtime: ToolRuntime[Any, Any],
        config: RunnableConfig,
    ) -> str:
        """Read all that is passed."""
        assert runtime.store is store is get_store()
        item = store.get(("trips",), key)
        assert runtime.context is get_runtime(Customer).context
        configurable = config.get("configurable", {})
        assert get_config()["configurable"]["tenant"] == configurable["tenant"]
        tags = config.get("tags") or []
        seen.note(name, item and item.value["to"], runtime.context, configurable["tenant"])
        seen.note(name, configurable["client"], "red" in tags)
        return "looked"

    return [injected]


def team(seen: Seen, **own: Any) -> Agent:
    steps = [Call("injected", {"key": "one"})]
    model = ScriptedModel(
        {
            "head": [*steps, delegate("mid", "go"), "end"],
            "mid": [*steps, delegate("leaf", "go"), "done"],
            "leaf": [*steps, "done"],
        }
    )
    leaf = Agent("leaf", tools=look(seen, "leaf"))
    mid = Agent("mid", tools=look(seen, "mid"), subordinates=[leaf])
    return Agent("head", model=model, tools=look(seen, "head"), subordinates=[mid], **own)


def send(session: Session, task: Any, in_loop: bool, **more: Any) -> Result:
    if not in_loop:
        return session.send(task, **more).result()

    async def wait() -> Result:
        run = await session.asend(task, **more)
        return await run.result()

    return asyncio.run(wait())


def stored_bytes(database: Path) -> bytes:
    with sqlite3.connect(database) as connection:
        return "\n".join(connection.iterdump()).encode() + database.read_bytes()


class Counting(BaseCallbackHandler):
    def __init__(self) -> None:
        self.tools: list[str] = []

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        self.tools.append(kwargs["metadata"]["agent_path"])


class CountingLater(AsyncCallbackHandler):
    def __init__(self) -> None:
        self.tools: list[str] = []

    async def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        self.tools.append(kwargs["metadata"]["agent_path"])


@pytest.mark.parametrize("in_loop", [False, True])
def test_tools_of_three_levels_read_all_that_a_session_passes(
    tmp_path: Path, in_loop: bool
) -> None:
    seen, counting, later, store = Seen(), Counting(), CountingLater(), InMemoryStore()
    store.put(("trips",), "one", {"to": "Rome"})
    ann, client = Customer("Ann"), object()
    with Session(
        team(seen),
        tmp_path / "t.sqlite",
        store=store,
        context=ann,
        configurable={"tenant": "globex", "client": client, "api_key": SECRET},
        callbacks=[counting, later],
        tags=["red"],
    ) as session:
        assert send(session, "go", in_loop).text == "end"

    assert seen.facts == {name: ["Rome", ann, "globex", client, True] for name in NAMES}
    assert counting.tools == later.tools == ["head", "head/mid", "head/mid/leaf"]
    assert SECRET.encode() not in stored_bytes(tmp_path / "t.sqlite")
    assert b"globex" not in stored_bytes(tmp_path / "t.sqlite")


@pytest.mark.parametrize("in_loop", [False, True])
def test_functions_runnables_and_graphs_read_it_too(tmp_path: Path, in_loop: bool) -> None:
    seen, store, ann = Seen(), InMemoryStore(), Customer("Ann")
    store.put(("trips",), "one", {"to": "Rome"})

    def read(name: str) -> str:
        item = get_store().get(("trips",), "one")
        configurable = get_config()["configurable"]
        seen.note(name, item and item.value["to"], get_runtime(Customer).context)
        seen.note(name, configurable["model"], configurable["tenant"])
        return name

    def function(task: str) -> str:
        """Read."""
        return read("function")

    def build_graph(name: str) -> Any:
        builder = StateGraph(MessagesState)
        builder.add_node("inner", lambda state: {"messages": [("ai", read(name))]})
        builder.add_edge(START, "inner")
        return builder.compile(name=name)

    # A graph inside a Runnable: LangChain copies some keys into the metadata on the way there.
    inner = build_graph("chain")
    chain = RunnableLambda(lambda task: inner.invoke({"messages": [("user", task)]}), name="chain")
    runnable: Any = RunnableLambda(lambda task: read("runnable"), name="runnable")
    kinds = [function, build_graph("graph"), runnable, chain]
    names = ["function", "graph", "runnable", "chain"]
    model = ScriptedModel({"head": [*(delegate(name, "go") for name in names), "end"]})
    with Session(
        Agent("head", model=model, subordinates=kinds),
        tmp_path / "t.sqlite",
        store=store,
        context=ann,
        configurable={"tenant": "acme-hidden", "model": SECRET},
    ) as session:
        assert send(session, "go", in_loop).text == "end"

    assert seen.facts == {each: ["Rome", ann, SECRET, "acme-hidden"] for each in names}
    assert SECRET.encode() not in stored_bytes(tmp_path / "t.sqlite")
    assert b"acme-hidden" not in stored_bytes(tmp_path / "t.sqlite")


def test_a_callback_manager_is_not_changed_by_the_runs_that_it_is_given_to() -> None:
    counting = Counting()
    manager = CallbackManager([counting], inheritable_handlers=[counting])
    with Session(
        team(Seen()),
        ":memory:",
        store=InMemoryStore(),
        configurable={"tenant": "acme", "client": 1},
        callbacks=manager,
        tags=["red"],
    ) as session:
        assert send(session, "go", in_loop=False).finished

    assert counting.tools == ["head", "head/mid", "head/mid/leaf"]
    assert manager.handlers == [counting]
    assert manager.tags == manager.inheritable_tags == []


def asking(seen: Seen) -> Agent:
    """Return three levels whose lowest agent asks, and then reads its config."""

    def book(config: RunnableConfig, runtime: ToolRuntime[Any, Any]) -> str:
        """Book."""
        sure = interrupt("Sure?")
        configurable = config.get("configurable", {})
        seen.note("leaf", *map(configurable.get, ("tenant", "limit", "api_key")), runtime.context)
        return str(sure)

    model = ScriptedModel(
        {
            "head": [delegate("mid", "go"), "end"],
            "mid": [delegate("leaf", "go"), "done"],
            "leaf": [Call("book"), "done"],
        }
    )
    mid = Agent("mid", subordinates=[Agent("leaf", tools=[book])])
    return Agent("head", model=model, subordinates=[mid])


GIVEN = {"tenant": "acme", "limit": 7, "api_key": SECRET}


def test_a_stored_key_is_given_again_at_a_resume_and_the_others_are_not(tmp_path: Path) -> None:
    database, seen = tmp_path / "t.sqlite", Seen()
    with Session(
        asking(seen),
        database,
        context="ann",
        configurable=GIVEN,
        stored_keys=["tenant", "limit"],
        metadata={"team": "mine"},
    ) as session:
        [question] = send(session, "go", in_loop=False).questions
    with SqliteCheckpointer(database) as saver:
        [root] = ThreadStore(saver).roots()
    with Session(asking(seen), database) as later:
        assert later.answer(question.id, "yes").result().finished

    assert seen.facts == {"leaf": ["acme", 7, None, None]}
    assert root.metadata == {"team": "mine", "tenant": "acme", "limit": 7}
    assert SECRET.encode() not in stored_bytes(database)


@pytest.mark.parametrize("in_loop", [False, True])
def test_what_a_resume_gives_goes_before_what_is_stored(tmp_path: Path, in_loop: bool) -> None:
    database, seen = tmp_path / "t.sqlite", Seen()
    keys = ["tenant", "limit"]
    with Session(asking(seen), database, configurable=GIVEN, stored_keys=keys) as session:
        [question] = send(session, "go", in_loop, turn_id="1").questions
    # A second question in a row: what was restored once is still stored after it.
    with Session(asking(seen), database, stored_keys=keys) as later:
        assert send(later, "go", in_loop, turn_id="1").questions == (question,)
    with Session(
        asking(seen), database, configurable={"tenant": "else", "api_key": "new"}, context="ann"
    ) as last:
        assert last.answer(question.id, "yes").result().finished
        [root] = last.threads()

    assert seen.facts == {"leaf": ["else", 7, "new", "ann"]}
    assert root.metadata == {"tenant": "acme", "limit": 7}


def test_a_restored_key_stays_stored_for_the_next_resume(tmp_path: Path) -> None:
    def ask_twice(config: RunnableConfig) -> str:
        """Ask."""
        interrupt("One?")
        interrupt("Two?")
        return str(config.get("configurable", {}).get("tenant"))

    def build() -> Agent:
        model = ScriptedModel(
            {
                "head": [delegate("leaf", "go"), "end"],
                "leaf": [Call("ask_twice"), Call("ask_twice"), "done"],
            }
        )
        return Agent("head", model=model, subordinates=[Agent("leaf", tools=[ask_twice])])

    database = tmp_path / "t.sqlite"
    with Session(
        build(), database, configurable={"tenant": "acme"}, stored_keys=["tenant"]
    ) as session:
        send(session, "go", in_loop=False)
    for _ in range(4):
        with Session(build(), database) as later:
            [question] = later.inbox()
            later.answer(question.id, "yes").result()

    with Session(build(), database) as last:
        [leaf] = last.trace().subordinates
        messages = last.thread_store.get(leaf.thread_id).messages
    assert [str(each.text) for each in messages if each.type == "tool"] == ["acme", "acme"]


def test_a_stored_key_that_is_neither_given_nor_stored_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    with Session(asking(Seen()), tmp_path / "t.sqlite", stored_keys=["tenant"]) as session:
        with raises_code("invalid_option", match="'tenant': configurable= has no such key"):
            session.send("go")
        with raises_code("invalid_option", match="'tenant': configurable= has no such key"):
            asyncio.run(session.asend("go"))
        assert session.threads() == []


def test_a_new_turn_has_only_what_its_session_gives(tmp_path: Path) -> None:
    seen: list[Any] = []

    def read(config: RunnableConfig) -> str:
        """Read."""
        seen.append(config.get("configurable", {}).get("tenant"))
        return "read"

    agent = Agent("head", model=ScriptedModel([Call("read"), "end"] * 2), tools=[read])
    database = tmp_path / "t.sqlite"
    with Session(
        agent, database, configurable={"tenant": "acme"}, stored_keys=["tenant"]
    ) as session:
        send(session, "go", in_loop=False)
    with Session(agent, database) as later:
        send(later, "go on", in_loop=False)
        [root] = later.threads()

    assert seen == ["acme", None]
    assert root.metadata == {}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"configurable": {"__pregel_send": 1}}, "'__pregel_send': names that begin with '__'"),
        ({"configurable": {"42": 1}}, "'42': a number is no name"),
        ({"configurable": {"-7.5": 1}}, "'-7.5': a number is no name"),
        ({"configurable": {42: 1}}, "42: a key is a text"),
        ({"configurable": {"thread_id": "x"}}, "'thread_id': LangGraph reads this name"),
        ({"configurable": {"checkpoint_ns": "x"}}, "'checkpoint_ns': LangGraph reads this name"),
        ({"configurable": {"run_id": "x"}}, "'run_id': LangGraph reads this name"),
        ({"configurable": ["tenant"]}, r"\['tenant'\]: it is no mapping"),
        ({"stored_keys": "tenant"}, "'tenant': it is no list of texts"),
        ({"stored_keys": ["__x"]}, "'__x': names that begin with '__'"),
        ({"stored_keys": ["7"]}, "'7': a number is no name"),
        ({"stored_keys": [7]}, "7: it is no text"),
        ({"stored_keys": ["a b"]}, "'a b': use letters"),
        ({"stored_keys": ["agent_path"]}, "'agent_path': checkpoints have metadata of this name"),
        ({"stored_keys": ["step"]}, "'step': checkpoints have metadata of this name"),
        ({"stored_keys": ["team"], "metadata": {"team": "x"}}, "'team': metadata= has the same"),
        (
            {"stored_keys": ["trip"], "configurable": {"trip": {"to": "Rome"}}},
            "trip={'to': 'Rome'}: it is of type dict; only texts, numbers",
        ),
        ({"tags": "red"}, "'red': it is no list of texts"),
        ({"tags": ["red", 5]}, "5: it is no text"),
        ({"callbacks": [print]}, "give a list of LangChain's callback handlers"),
        ({"callbacks": Counting()}, "give a list of LangChain's callback handlers"),
        ({"store": {"to": "Rome"}}, "{'to': 'Rome'}: it is no LangGraph store"),
    ],
)
def test_what_cannot_be_passed_is_refused_by_name(
    tmp_path: Path, options: Mapping[str, Any], named: str
) -> None:
    with raises_code("invalid_option", match=named) as refused:
        Session(team(Seen()), tmp_path / "t.sqlite", **options)

    assert isinstance(refused.value, InvalidInput)
    assert not (tmp_path / "t.sqlite").exists()


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "apikey",
        "openaiApiKey",
        "KEY",
        "x-key",
        "token",
        "auth.token",
        "accesstoken",
        "password",
        "db_password",
        "client_secret",
        "secret",
        "credentials",
        "authorization",
        "passcode",
        "accessKey",
        "accesskey",
        "sessionCookies",
    ],
)
def test_the_name_of_a_secret_is_not_stored(key: str) -> None:
    with raises_code("invalid_option", match="by its name it is a secret"):
        Session(team(Seen()), ":memory:", configurable={key: "x"}, stored_keys=[key])


@pytest.mark.parametrize("key", ["monkey", "author", "max_tokens", "keyboard", "compass", "v1"])
def test_a_name_that_only_resembles_one_is_stored(key: str) -> None:
    Session(team(Seen()), ":memory:", configurable={key: "x"}, stored_keys=[key]).close()


def test_too_much_to_store_is_refused() -> None:
    long = {"tenant": "x" * 5000}
    with raises_code("input_too_large", match="metadata and stored_keys"):
        Session(team(Seen()), ":memory:", configurable=long, stored_keys=["tenant"])


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
def test_a_saver_that_stores_all_of_a_configurable_is_given_only_what_may_be_stored() -> None:
    why = "InMemorySaver stores every text and number of it; name it in stored_keys="
    with raises_code("invalid_option", match=f"'tenant': {why}"):
        Session(asking(Seen()), InMemorySaver(), configurable={"tenant": "acme"})

    seen, saver = Seen(), InMemorySaver()
    given = {"tenant": "acme", "client": object()}
    with Session(asking(seen), saver, configurable=given, stored_keys=["tenant"]) as session:
        [question] = send(session, "go", in_loop=False).questions
    with Session(asking(seen), saver) as later:
        assert later.answer(question.id, "yes").result().finished
    assert seen.facts["leaf"][0] == "acme"


class Who(BaseModel):
    name: str


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_compiled_tree_takes_a_context_schema_as_any_graph(in_loop: bool) -> None:
    seen, store = Seen(), InMemoryStore()
    graph = team(seen).compile(store=store, context_schema=Who)
    config: Any = {"configurable": {"thread_id": "t", "tenant": "acme", "client": 1}}
    given: Any = {"messages": [("user", "go")]}

    if in_loop:
        asyncio.run(graph.ainvoke(given, config, context={"name": "Ann"}))
    else:
        graph.invoke(given, config, context={"name": "Ann"})

    assert seen.facts == {name: [None, Who(name="Ann"), "acme", 1, False] for name in NAMES}
    schema = graph.get_context_jsonschema()
    assert schema is not None and "name" in schema["properties"]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"store": 5}, "store= holds 5"), ({"context_schema": {"a": 1}}, "context_schema= holds")],
)
def test_a_compiled_tree_refuses_what_is_no_store_or_schema(
    tmp_path: Path, options: Any, named: str
) -> None:
    with raises_code("invalid_option", match=named):
        team(Seen()).compile(tmp_path / "t.sqlite", **options)
    assert not (tmp_path / "t.sqlite").exists()


def test_a_compiled_tree_with_a_store_of_its_own_is_no_subordinate() -> None:
    below = Agent("below").compile(store=InMemoryStore())
    with raises_code(
        "invalid_subordinate", match="'below' is no subordinate: it is compiled with a"
    ):
        Agent("head", subordinates=[below])
