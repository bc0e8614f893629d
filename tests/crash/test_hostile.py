"""A hostile input is refused by name or does no harm, and nothing else is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, interrupt

from echelons import (
    Agent,
    Capability,
    DelegationPolicy,
    EchelonsError,
    Session,
    SqliteCheckpointer,
    ThreadStore,
    effect,
)
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.proof import sample

if TYPE_CHECKING:
    from tests.crash.conftest import Besieged


def ask(question: str) -> str:
    """Ask a human."""
    return f"a human said {interrupt(question)}"


def alone() -> Agent:
    return Agent("head", model=ScriptedModel({"head": ["done"]}))


def asking() -> Agent:
    return Agent("head", model=ScriptedModel([Call("ask", {"question": "?"}), "done"]), tools=[ask])


class Bomb:
    """Imports the trap when it is unpickled."""

    def __reduce__(self) -> Any:
        return __import__, ("trap",)


TEXTS: dict[str, Any] = {
    "sql": "'; DROP TABLE checkpoints; --",
    "sql in json": "') OR json_extract(metadata, '$.x') = ('",
    "path": "../../../../etc/passwd",
    "shell": "$(touch sung); `touch sung`",
    "template": "{{ ''.__class__ }} {0} %s %n ${jndi:ldap://x}",
    "python": "__import__('trap')",
    "markup": "<script>alert(1)</script>",
    "terminal": "\x1b]0;x\x07\x1b[2J",
    "nul": "a\0b",
    "half": "\ud83d",
    "other half": "x\udc80",
    "right to left": "\u202etxt.exe",
    "joiners": "\u200d\ufeff\u2060",
    "combining": "a" + "\u0301" * 500,
    "line ends": "a\r\n\u2028b",
    "empty": "",
    "spaces": "   ",
    "long": "x" * 5000,
    "too long": "x" * (1024 * 1024 + 1),
    "separators": "a|b:c/d",
    "json": '{"lc": 1, "type": "constructor", "id": ["trap"]}',
    "deep json": "[" * 5000,
    "number": "1" * 5000,
    "uuid": "8f1d0a52-6a5e-5c0b-9d55-0c2b5a1f6e11",
    "reserved": "__interrupt__",
    "everything": "__remove_all__",
    "none": None,
    "no text": 5,
    "bytes": b"\xff\x00",
    "list": ["a", ["b"]],
    "mapping": {"__overwrite__": []},
    "bomb": Bomb(),
}

GOOD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def run(given: Any, config: RunnableConfig = GOOD) -> Callable[[SqliteCheckpointer], Any]:
    return lambda saver: alone().compile(saver).invoke(given, config)


def configured(**given: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": "t", **given}}


def answered(given: Any) -> Callable[[SqliteCheckpointer], Any]:
    def answer(saver: SqliteCheckpointer) -> Any:
        session = Session(asking(), saver, thread=str(uuid4()))
        session.send("go").result()
        return session.answer(session.inbox()[0].id, given).result()

    return answer


def named(question: Any) -> Callable[[SqliteCheckpointer], Any]:
    def answer(saver: SqliteCheckpointer) -> Any:
        session = Session(asking(), saver, thread=str(uuid4()))
        session.send("go").result()
        return session.answer({question: "yes"} if question.__hash__ else question).result()

    return answer


def called(given: Any) -> Any:
    call: Any = {"name": "ask", "args": {"question": given}, "id": "1", "type": "tool_call"}
    return [AIMessage("", tool_calls=[call]), ToolMessage("x", tool_call_id="1"), "go"]


PLACES: dict[str, Callable[[Any], Callable[[SqliteCheckpointer], Any]]] = {
    "task": lambda given: lambda saver: Session(alone(), saver).send(given).result(),
    "thread": lambda given: lambda saver: Session(alone(), saver, thread=given).send("go").result(),
    "note": lambda given: (
        lambda saver: Session(alone(), saver, metadata={"n": given}).send("go").result()
    ),
    "thread id": lambda given: run({"messages": "go"}, configured(thread_id=given)),
    "thread id below": lambda given: run(
        {"messages": "go"}, configured(thread_id=given, checkpoint_ns="a")
    ),
    "namespace": lambda given: run({"messages": "go"}, configured(checkpoint_ns=given)),
    "configured": lambda given: run({"messages": "go"}, configured(api_key=given, model=given)),
    "message": lambda given: run({"messages": given}),
    "content": lambda given: run({"messages": [{"role": "user", "content": given}]}),
    "role": lambda given: run({"messages": [{"role": given, "content": "x"}]}),
    "block": lambda given: run({"messages": [{"role": "user", "content": [{"type": given}]}]}),
    "sender": lambda given: run({"messages": [{"role": "user", "content": "x", "name": given}]}),
    "id": lambda given: run({"messages": [{"role": "user", "content": "x", "id": given}]}),
    "extra": lambda given: run({"messages": [{"role": "user", "content": "x", "also": given}]}),
    "call": lambda given: run({"messages": called(given)}),
    "answer": answered,
    "question": named,
}


def looking() -> Agent:
    """Return a tree of two levels, whose lower agent has a tool."""
    scripts: dict[str, Any] = {"head": [delegate("leaf", "look"), "done"] * 2}
    leaf = Agent("leaf", tools=[ask], model=ScriptedModel([Call("ask", {"question": "?"}), "seen"]))
    return Agent("head", model=ScriptedModel(scripts), subordinates=[leaf])


CONFIGURED: list[tuple[Any, Any]] = [
    *((key, "x") for key in (5, 1.5, None, True, (1, 2), b"x")),
    *(
        (f"__echelons_{key}", each)
        for key in ("gate", "turn", "deadline", "x")
        for each in (5, "x")
    ),
    *((f"__pregel_{key}", each) for key in ("checkpointer", "runtime", "x") for each in (5, "x")),
    *(("checkpoint_id", each) for each in (5, "x", "../x", ["x"], {"x": 1}, "'; --")),
    *(("checkpoint_map", each) for each in (5, "x", ["x"], {"": "x"}, {5: 5})),
]


@pytest.mark.parametrize(("key", "value"), CONFIGURED, ids=repr)
async def test_a_hostile_key_of_a_config_is_refused_by_name_and_the_thread_goes_on(
    key: Any, value: Any
) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        graph = looking().compile(saver)
        graph.invoke({"messages": "go"}, GOOD)
        config: Any = {"configurable": {"thread_id": "t", key: value}}
        rows = list(saver.list(None))
        for given in ({"messages": "again"}, None):
            with pytest.raises(EchelonsError):
                graph.invoke(given, config)
            with pytest.raises(EchelonsError):
                await graph.ainvoke(given, config)

        assert list(saver.list(None)) == rows
        assert graph.invoke(Command(resume="yes"), GOOD)["messages"][-1].text == "done"


class Mute:
    """A key without a text."""

    def __str__(self) -> str:
        raise ValueError

    def __repr__(self) -> str:
        return "mute"


class Raw(BaseChatModel):
    """A model whose client hands on whatever it has parsed."""

    arguments: dict[str, Any]

    @property
    def _llm_type(self) -> str:
        return "raw"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        call: Any = {"name": "keep", "args": self.arguments, "id": "1", "type": "tool_call"}
        is_begun = isinstance(messages[-1], ToolMessage)
        reply = AIMessage("done") if is_begun else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def keep(data: dict[Any, Any]) -> str:
    """Keep something."""
    return ", ".join(map(repr, data))


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        *(((1, 2), "'(1, 2)'"), (frozenset({1}), "'frozenset({1})'"), (b"x", "\"b'x'\"")),
        *((1j, "'1j'"), (Mute(), "'Mute'"), (5, "'5'"), (None, "'None'")),
    ],
    ids=repr,
)
async def test_a_key_of_arguments_that_json_does_not_have_becomes_a_text(
    key: Any, kept: str
) -> None:
    head = Agent("head", model=Raw(arguments={"data": {key: 1}}), tools=[keep])
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(head, saver)
        assert session.send("go").result().text == "done"
        assert (await (await session.asend("again")).result()).text == "done"

        messages = session.thread_store.get(session.thread_id).messages
        assert [each.text for each in messages if isinstance(each, ToolMessage)] == [kept] * 2


def test_a_thread_whose_checkpoints_have_no_step_goes_on() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        graph = looking().compile(saver)
        graph.invoke({"messages": "go"}, GOOD)
        with saver.conn as connection:
            connection.execute(
                "UPDATE checkpoints SET metadata = json_remove(CAST(metadata AS TEXT), '$.step')"
            )

        assert graph.invoke(Command(resume="yes"), GOOD)["messages"][-1].text == "done"
        assert graph.invoke({"messages": "again"}, GOOD)["__interrupt__"]


def fail(*_: Any) -> Any:
    raise RuntimeError("boom")


def failing(kind: type[Any]) -> type[Any]:
    """Return a class whose objects cannot be read by their own methods."""
    names = ["__str__", "__repr__", "__len__", "__iter__", "__bool__", "__eq__", "__lt__", "__gt__"]
    names += ["__le__", "__ge__", "encode", "strip", "isprintable", "items", "keys", "get"]
    methods: dict[str, Any] = {**dict.fromkeys(names, fail), "__hash__": object.__hash__}
    return type(f"Failing{kind.__name__}", (kind,), methods)


class Endless(Mapping[str, int]):
    """Says that it has one item, and never ends."""

    def __getitem__(self, name: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return map(str, count())

    def __len__(self) -> int:
        return 1


Silent = type("Silent", (), {"__class__": property(fail)})


OBJECTS: dict[str, Callable[[], Any]] = {
    "failing text": lambda: failing(str)("x"),
    "failing mapping": lambda: failing(dict)(a=1),
    "failing list": lambda: failing(list)(["x"]),
    "failing number": lambda: failing(int)(2**70),
    "endless": Endless,
    "huge": lambda: 10**5000,
}
ARGUMENTS: dict[str, Callable[[Session, Any], Any]] = {
    "agent": lambda session, given: Session(given, ":memory:"),
    "database": lambda session, given: Session(session.graph.agent, given),
    "thread": lambda session, given: Session(session.graph.agent, ":memory:", thread=given),
    "metadata": lambda session, given: Session(session.graph.agent, ":memory:", metadata=given),
    "passed": lambda session, given: Session(session.graph.agent, ":memory:", configurable=given),
    "tags": lambda session, given: Session(session.graph.agent, ":memory:", tags=given),
    "kept": lambda session, given: Session(session.graph.agent, ":memory:", stored_keys=given),
    "memory": lambda session, given: Session(session.graph.agent, ":memory:", store=given),
    "task": lambda session, given: session.send(given).result(),
    "block": lambda session, given: session.send([given]).result(),
    "part of a block": lambda session, given: session.send([{"type": "image", "url": given}]),
    "turn": lambda session, given: session.send("go", turn_id=given).result(),
    "context": lambda session, given: session.send("go", request_context=given),
    "question": lambda session, given: session.answer(given, "x"),
    "answers": lambda session, given: session.answer(given),
    "stopped": lambda session, given: session.stop(given),
    "thread of a store": lambda session, given: session.thread_store.get(given),
    "root of a store": lambda session, given: session.thread_store.trace(given),
    "store": lambda _, given: ThreadStore(given),
    "name": lambda _, given: Agent(given),
    "tools": lambda _, given: Agent("head", tools=given),
    "subordinates": lambda _, given: Agent("head", subordinates=given),
    "capabilities": lambda _, given: Agent("head", capabilities=given),
    "examples": lambda _, given: Capability(0.5, examples=given),
    "threshold": lambda _, given: DelegationPolicy(threshold=given),
    "seal": lambda _, given: SqliteCheckpointer(":memory:", seal=given),
    "clock": lambda _, given: SqliteCheckpointer(":memory:", clock=given),
    "configured thread": lambda session, given: session.graph.invoke(
        {"messages": "go"}, configured(thread_id=given)
    ),
    "configured checkpoint": lambda session, given: session.graph.invoke(
        {"messages": "go"}, configured(checkpoint_id=given)
    ),
    "messages": lambda session, given: session.graph.invoke({"messages": [given]}, GOOD),
}


@pytest.mark.parametrize(("argument", "given"), [*product(ARGUMENTS, OBJECTS)][:: sample(3, 1)])
def test_an_object_that_cannot_be_read_is_refused_by_name(
    argument: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel(["done"])
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(Agent("head", model=model), saver)
        try:
            ARGUMENTS[argument](session, OBJECTS[given]())
        except EchelonsError as error:
            assert len(str(error).encode()) < 2000
        else:
            assert "text" in given

        if not model.calls:
            assert session.send("go").result().text == "done"


class Pairless(Endless):
    """A mapping whose items are no pairs."""

    def items(self) -> Any:
        return [1, 2]


OTHERS: dict[str, Callable[[Session], Any]] = {
    "effect": lambda _: effect(idempotent=failing(int)(1)),
    "effect of a text": lambda _: effect(reads_only=cast("bool", "no")),
    "no thread": lambda session: session.graph.invoke({"messages": "go"}),
    "thread of none": lambda session: session.graph.invoke(
        {"messages": "go"}, configured(thread_id=None)
    ),
    "endless configurable": lambda session: session.graph.invoke(
        {"messages": "go"}, {"configurable": cast("dict[str, Any]", Endless())}
    ),
    "input without a class": lambda session: session.graph.invoke(Silent(), GOOD),
    "checkpoints": lambda session: session.graph.invoke(
        {"messages": "go"}, configured(checkpoint_map=None)
    ),
    "compared checkpoints": lambda session: session.graph.invoke(
        {"messages": "go"}, configured(checkpoint_map=failing(str)("x"))
    ),
    "offload": lambda _: SqliteCheckpointer(":memory:", offload=failing(int)(1)),
    "path": lambda session: Session(session.graph.agent, "x" * 10**6),
    "receiver": lambda session: session.send_message(cast("str", {"head"}), "x"),
    "steered": lambda session: session.steer(cast("str", Silent()), "x"),
    "message": lambda session: session.steer("head", cast("str", Silent())),
    "endless mapping": lambda session: session.graph.invoke(
        {"messages": [{"role": "user", "content": "x", "kept": Endless()}]}, GOOD
    ),
    "half a character": lambda session: session.thread_store.failures("\ud83d"),
    "capabilities": lambda _: Agent("head", capabilities=cast("Any", Pairless())),
}


class EndlessList(list[str]):
    """Says that it is empty, and never ends."""

    def __iter__(self) -> Iterator[str]:
        while True:
            yield ""


def test_an_answer_or_a_message_with_a_list_that_never_ends_is_too_large() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(asking(), saver)
        session.send("go").result()
        [question] = session.inbox()
        message = {"role": "user", "content": "x", "kept": EndlessList()}
        with raises_code("input_too_large"):
            session.answer(question.id, EndlessList())
        with raises_code("input_too_large"):
            session.graph.invoke({"messages": [message]}, configured(thread_id="other"))

        assert session.answer(question.id, "yes").result().text == "done"


@pytest.mark.parametrize("place", OTHERS)
def test_what_is_read_before_a_run_is_refused_by_name(place: str) -> None:
    model = ScriptedModel(["done"])
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(Agent("head", model=model), saver)
        with pytest.raises(EchelonsError) as refused:
            OTHERS[place](session)

        assert len(str(refused.value)) < 1000
        assert session.send("go").result().text == "done"


def test_a_map_of_checkpoints_that_is_none_is_refused_also_if_it_is_empty() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        graph = looking().compile(saver)
        graph.invoke({"messages": "go"}, GOOD)
        with raises_code("invalid_option"):
            graph.invoke({"messages": "again"}, configured(checkpoint_map=[]))

        assert graph.invoke(Command(resume="yes"), GOOD)["messages"][-1].text == "done"


def test_a_text_of_any_class_is_stored_as_a_plain_one() -> None:
    text = type("Text", (str,), {"__str__": fail, "__repr__": fail})
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(alone(), saver, thread=text("trip"), metadata={text("a"): text("b")})
        session.send([{"type": "text", "text": text("go")}]).result()

        assert [each.name for each in session.threads()] == ["trip"]
        assert session.threads()[0].metadata == {"a": "b"}
        [task, _] = session.thread_store.get(session.thread_id).messages
        assert repr(task.content) == "[{'type': 'text', 'text': 'go'}]"


@pytest.mark.parametrize(("place", "text"), [*product(PLACES, TEXTS)][:: sample(3, 1)])
def test_a_hostile_input_is_refused_by_name_or_does_no_harm(
    place: str, text: str, lasting: Besieged, unharmed: list[Any], canary: Path
) -> None:
    try:
        PLACES[place](TEXTS[text])(lasting.saver)
    except EchelonsError as error:
        str(error).encode()
        assert len(str(error)) < 2000

    assert lasting.read(lasting.good) == unharmed
    lasting.saver.delete_thread("t")


def test_there_are_enough_hostile_inputs() -> None:
    assert len(PLACES) * len(TEXTS) >= 300
