"""Arguments that say what is meant in another form are mended once, for all that look at them."""

from __future__ import annotations

import json
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import (
    BaseTool,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
    tool,
)
from langgraph.types import Command
from pydantic import BaseModel

from echelons import Agent, Contract, Permissions, Session, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import without_marks

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Room(BaseModel):
    beds: int = 1
    view: str = "sea"


SEEN: list[Any] = []


@tool
def book(
    city: str,
    size: Size = Size.SMALL,
    pay: Literal["cash", "card"] = "cash",
    room: Room | None = None,
    tags: Annotated[list[str], "Its tags."] = [],  # noqa: B006
    nights: int = 1,
    note: str = "",
) -> str:
    """Book a room."""
    SEEN.append((city, size, pay, room, tags, nights, note))
    return "booked"


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "size": {"enum": ["small", "large"]},
        "pay": {"$ref": "#/$defs/Pay"},
        "room": {"anyOf": [{"$ref": "#/$defs/Room"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "nights": {"type": "integer"},
        "note": {"type": "string"},
    },
    "required": ["city"],
    "$defs": {
        "Pay": {"type": "string", "enum": ["cash", "card"]},
        "Room": {
            "type": "object",
            "properties": {"beds": {"type": "integer"}, "view": {"type": "string"}},
        },
    },
}


def book_by_schema(**given: Any) -> str:
    room = Room(**given["room"]) if given.get("room") else None
    keys = ("size", "pay", "tags", "nights", "note")
    size, pay, tags, nights, note = (
        given.get(key, other) for key, other in zip(keys, ("small", "cash", [], 1, ""), strict=True)
    )
    SEEN.append((given["city"], size, pay, room, tags, nights, note))
    return "booked"


TOOLS: dict[str, BaseTool] = {
    "pydantic": book,
    "schema": StructuredTool.from_function(
        book_by_schema, name="book", description="Book a room.", args_schema=SCHEMA
    ),
}
CASES: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"nights": None, "note": None}, ("Rome", "small", "cash", None, [], 1, "")),
    ({"size": " LARGE ", "pay": "Card"}, ("Rome", "large", "card", None, [], 1, "")),
    ({"tags": '["a", "b"]'}, ("Rome", "small", "cash", None, ["a", "b"], 1, "")),
    ({"room": '{"beds": 2}'}, ("Rome", "small", "cash", Room(beds=2), [], 1, "")),
    ({"room": {"beds": 2, "view": None}}, ("Rome", "small", "cash", Room(beds=2), [], 1, "")),
    ({"note": {"late": True}}, ("Rome", "small", "cash", None, [], 1, '{"late": true}')),
    ({"tags": [{"x": 1}, "b"]}, ("Rome", "small", "cash", None, ['{"x": 1}', "b"], 1, "")),
]


@pytest.mark.parametrize("kind", TOOLS)
@pytest.mark.parametrize(("arguments", "seen"), CASES)
def test_tool_gets_arguments_that_are_meant(kind: str, arguments: Any, seen: Any) -> None:
    SEEN.clear()
    model = ScriptedModel([Call("book", {"city": "Rome", **arguments}), "done"])
    with Session(Agent("head", model=model, tools=[TOOLS[kind]]), ":memory:") as session:
        session.send("go").result()
        stored = session.thread_store.get(session.thread_id).messages

    assert [seen] == SEEN
    [call] = next(each.tool_calls for each in stored if isinstance(each, AIMessage))
    assert call["args"] == {"city": "Rome", **arguments}


def test_arguments_that_are_taken_stay_as_they_came(world: World) -> None:
    SEEN.clear()
    given = {"city": "Rome", "nights": "2", "note": '{"a": 1}', "room": None}
    model = ScriptedModel([Call("book", given), "done"])
    with Session(Agent("head", model=model, tools=[book]), ":memory:") as session:
        world.send(session, "go")

    assert SEEN == [("Rome", "small", "cash", None, [], 2, '{"a": 1}')]


def test_error_says_what_to_send(world: World) -> None:
    model = ScriptedModel([Call("book", {"nights": "many"}), "done"])
    with Session(Agent("head", model=model, tools=[book]), ":memory:") as session:
        world.send(session, "go")

    error = without_marks(model.calls[-1].messages[-1].text)
    assert error.startswith("Error: not run: ")
    assert "many" in error
    assert '"required": ["city"]' in error


def test_approval_middleware_and_tool_see_mended_arguments(
    world: World, saver: SqliteCheckpointer
) -> None:
    SEEN.clear()
    wrapped: list[Any] = []

    class Watch(AgentMiddleware[Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            wrapped.append(request.tool_call["args"])
            return handler(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            wrapped.append(request.tool_call["args"])
            return await handler(request)

    model = ScriptedModel([Call("book", {"city": "Rome", "tags": '["a"]', "note": None}), "done"])
    agent = Agent(
        "head",
        model=model,
        tools=[book],
        middleware=[Watch()],
        permissions=Permissions(approvals={"book": "ask"}),
    )
    session = Session(agent, saver)
    asked = world.send(session, "go")

    assert "'tags': ['a']" in str(asked.questions[0].value)
    assert world.answer(session, {asked.questions[0].id: "approve"}).text == "done"
    assert wrapped[-1] == {"city": "Rome", "tags": ["a"]}
    assert SEEN == [("Rome", "small", "cash", None, ["a"], 1, "")]


def test_mended_call_that_asks_is_found_again(saver: SqliteCheckpointer) -> None:
    from langgraph.types import interrupt

    runs: list[Any] = []

    @tool
    def ask(tags: list[str], call: Annotated[str, InjectedToolCallId]) -> str:
        """Ask."""
        runs.append(tags)
        return str(interrupt("Which?"))

    model = ScriptedModel([Call("ask", {"tags": '["a"]'}), "done"])
    config: Any = {"configurable": {"thread_id": "t"}}
    graph = Agent("head", model=model, tools=[ask]).compile(saver)
    graph.invoke({"messages": [("user", "go")]}, config)
    again = Agent("head", model=model, tools=[ask]).compile(saver)
    done = again.invoke(Command(resume="this"), config)

    assert done["messages"][-1].text == "done"
    assert done["messages"][-2].text == "this"
    assert runs == [["a"], ["a"]]


@pytest.mark.parametrize(
    "arguments",
    [
        {"message": "go", "subordinate": "leaf", "reset": None, "context": None, "answers": None},
        {"message": "go", "subordinate": " Leaf "},
        {"message": "go", "context": '{"id": 7}'},
        {"Message": "go"},
        {"message": {"task": "go"}},
    ],
)
def test_delegation_is_understood(arguments: Any, world: World) -> None:
    model = ScriptedModel(
        {"head": [Call("call_subordinate", arguments), "over"], "leaf": ["did it"]}
    )
    with Session(Agent("head", model=model, subordinates=[Agent("leaf")]), ":memory:") as session:
        assert world.send(session, "go").text == "over"

    assert model.calls[-1].messages[-1].text == "did it"
    task = next(each for each in model.calls if each.agent == "leaf").messages
    if arguments.get("context"):
        assert "7" in str(task[1].text)
    if isinstance(arguments.get("message"), dict):
        assert json.loads(str(task[-1].text)) == {"task": "go"}


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({"status": "fulfilled", "result": {"price": 80}}, '{"price": 80}'),
        ({"status": " Fulfilled", "result": "80"}, "80"),
        ({"status": "fulfilled", "result": "80", "reason": None}, "80"),
        ({"status": "FULFILLED", "result": {}, "confidence": None}, "{}"),
    ],
)
def test_report_is_understood(arguments: Any, result: str, world: World) -> None:
    model = ScriptedModel(
        {"head": [delegate("leaf", "go"), "over"], "leaf": [Call("report", arguments)]}
    )
    with Session(Agent("head", model=model, subordinates=[Agent("leaf")]), ":memory:") as session:
        world.send(session, "go")

    assert model.calls[-1].messages[-1].text == result


def test_typed_subordinate_gets_what_is_meant(world: World) -> None:
    class Order(BaseModel):
        city: str
        size: Size = Size.SMALL
        tags: list[str] = []

    seen: list[Any] = []

    def work(order: Order) -> str:
        """Work."""
        seen.append(order)
        return "done"

    from echelons import subordinate

    below = subordinate(work, name="work", contract=Contract(input=Order))
    given = {"city": "Rome", "size": "LARGE", "tags": '["a"]'}
    model = ScriptedModel([Call("work", given), "over"])
    with Session(Agent("head", model=model, subordinates=[below]), ":memory:") as session:
        assert world.send(session, "go").text == "over"

    assert seen == [Order(city="Rome", size=Size.LARGE, tags=["a"])]


def test_arguments_in_a_text_are_read(world: World) -> None:
    written = json.dumps(json.dumps({"message": "go"}))
    broken: Any = {"name": "call_subordinate", "args": written, "id": "c", "error": None}
    reply = AIMessage("", invalid_tool_calls=[{"type": "invalid_tool_call", **broken}])
    model = ScriptedModel(
        {
            "head": lambda m: reply if m[-1].type == "human" else "over",
            "leaf": ["did it"],
        }
    )
    with Session(Agent("head", model=model, subordinates=[Agent("leaf")]), ":memory:") as session:
        assert world.send(session, "go").text == "over"

    assert model.calls[-1].messages[-1].text == "did it"


def test_refusal_says_what_came_and_what_to_send(world: World) -> None:
    model = ScriptedModel({"head": [Call("call_subordinate", {"message": ""}), "over"]})
    with Session(Agent("head", model=model, subordinates=[Agent("leaf")]), ":memory:") as session:
        world.send(session, "go")

    error = str(model.calls[-1].messages[-1].text)
    assert "message: " in error
    assert "came: message=''" in error
    assert 'send arguments such as {"message": ' in error


@pytest.mark.parametrize("kind", TOOLS)
def test_journal_has_the_digest_of_what_was_received(
    world: World, saver: SqliteCheckpointer, kind: str
) -> None:
    digests: list[Any] = []

    def note(city: str, tags: list[str]) -> str:
        """Note."""
        query = "SELECT json_extract(value, '$.arguments') FROM ledger_values WHERE key GLOB ?"
        digests.append((tags, *saver.conn.execute(query, ("*/effect/*",)).fetchone()))
        return "noted"

    form = SCHEMA if kind == "schema" else None
    noting = StructuredTool.from_function(note, args_schema=form)
    given = {"city": "Rome", "tags": '["a"]'}
    model = ScriptedModel([Call("note", given), "done"])

    world.send(Session(Agent("head", model=model, tools=[noting]), saver), "go")

    received = sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
    assert digests == [(["a"], received)]


def test_error_of_a_tool_that_checks_by_itself_says_what_to_send(world: World) -> None:
    def check(**given: Any) -> str:
        if not isinstance(given["nights"], int):
            raise ToolException("nights must be a number")
        return "booked"

    strict = StructuredTool.from_function(check, description="Book.", args_schema=SCHEMA)
    model = ScriptedModel([Call("check", {"nights": "many"}), "done"])
    with Session(Agent("head", model=model, tools=[strict]), ":memory:") as session:
        world.send(session, "go")

    error = str(model.calls[-1].messages[-1].text)
    assert error.startswith("Error: ") and "nights must be a number" in error
    assert "Send arguments of this schema: " in error and '"required": ["city"]' in error
