"""A hostile input is refused by name or does no harm, and nothing else is lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import interrupt

from echelons import Agent, EchelonsError, Session, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel
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
