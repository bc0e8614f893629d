"""What is stored can be read back, what cannot is refused, and no stored byte runs anything."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import pickle
import re
import subprocess
import sys
from collections import deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from langgraph.types import Interrupt, Overwrite, Send, TimeoutPolicy
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.storage.serde import MAX_VALUE_DEPTH, SNAPSHOT, AllowlistSerializer
from echelons.delegation.request import DelegationResponse, Status
from echelons.errors import CheckpointTampered, NotStorable
from echelons.testing import ScriptedModel, delegate
from tests.error_codes import raises_code

CALL = {"name": "look", "args": {"at": ["north", 1.5, None]}, "id": "1"}
STORABLE = [
    HumanMessage("hi", id="1", name="Ada"),
    AIMessage("", tool_calls=[CALL], response_metadata={"model_name": "m"}),
    AIMessageChunk(content="pie"),
    ToolMessage("seen", tool_call_id="1", artifact={"status": "fulfilled"}, status="error"),
    SystemMessage("be brief"),
    RemoveMessage(id="1"),
    ChatMessage(content="x", role="critic"),
    FunctionMessage(content="x", name="f"),
    Document("text", metadata={"page": 1}),
    Send("act", [CALL]),
    Send("act", {"of": Send("act", HumanMessage("deep"))}),
    Send("act", 1, timeout=TimeoutPolicy(run_timeout=3.0)),
    Interrupt({"question": "north?"}, id="abc"),
    Overwrite([1]),
    _DeltaSnapshot([HumanMessage("hi")]),
    datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    date(2025, 1, 2),
    time(3, 4, 5, 6, tzinfo=UTC),
    timedelta(days=-1, microseconds=5),
    timezone(timedelta(hours=2), "CEST"),
    UUID(int=5),
    Decimal("1.50"),
    Path("/a/b"),
    ipaddress.ip_address("1.2.3.4"),
    ipaddress.ip_interface("::1/64"),
    ipaddress.ip_network("10.0.0.0/8"),
    ZoneInfo("Europe/Rome"),
    {1, 2},
    frozenset("a"),
    deque([1, [2]]),
    b"bytes",
    bytearray(b"more"),
    None,
    {"a": [1, -(2**63), 2**64 - 1, 1.5, True, "é\0😀", b"x"], 7: {None: 1}},
]


def by_kind(value: Any) -> str:
    return type(value).__name__


@pytest.mark.parametrize("value", STORABLE, ids=by_kind)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    serde = AllowlistSerializer()

    again = serde.loads_typed(serde.dumps_typed(value))

    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("value", STORABLE, ids=by_kind)
def test_langgraph_reads_the_bytes_and_writes_such_that_are_read(value: Any) -> None:
    theirs, ours = JsonPlusSerializer(allowed_msgpack_modules=None), AllowlistSerializer()

    assert theirs.loads_typed(ours.dumps_typed(value)) == value
    assert ours.loads_typed(theirs.dumps_typed(value)) == value
    if not has_message(value):
        assert ours.dumps_typed(value) == theirs.dumps_typed(value)


def has_message(value: Any) -> bool:
    """Return whether a value has a message in it, of which LangGraph writes all defaults too."""
    return "Message" in repr(value)


# Messages


def test_of_a_message_its_defaults_are_not_stored() -> None:
    serde, usage = AllowlistSerializer(), {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    whole = AIMessage(
        [{"type": "text", "text": "x"}],
        id="1",
        name="a",
        tool_calls=[CALL],
        invalid_tool_calls=[],
        usage_metadata=usage,
        additional_kwargs={"k": None},
        response_metadata={"e": {}},
        odd=[],
    )

    assert serde.loads_typed(serde.dumps_typed(whole)).model_dump() == whole.model_dump()
    assert len(serde.dumps_typed(AIMessage("", id="1"))[1]) < 90


ANSWER = "the answer " * 50


def answered(content: Any = ANSWER, **more: Any) -> ToolMessage:
    response = DelegationResponse(
        request_id="r", agent="clerk", status=Status.FULFILLED, result=ANSWER
    )
    return ToolMessage(content, tool_call_id="1", artifact={**response.stored(), **more})


OWN_RECORD = {"model": "DelegationResponse"}
"""A record of a user's own tool, which only looks like a response."""


def test_an_answer_is_stored_once_and_read_with_its_artifact() -> None:
    serde, message = AllowlistSerializer(), answered()

    tag, stored = serde.dumps_typed(message)

    assert stored.count(b"the answer") == 50
    assert serde.loads_typed((tag, stored)) == message
    assert message == answered(), "what is stored is not changed"


@pytest.mark.parametrize(
    "message",
    [
        answered("edited"),
        answered([{"type": "text", "text": ANSWER}]),
        answered("", result=""),
        answered(model="Mine"),
        ToolMessage(ANSWER, tool_call_id="1", artifact={"result": ANSWER}),
        ToolMessage(ANSWER, tool_call_id="1", artifact={"result": None}),
        ToolMessage(ANSWER, tool_call_id="1", artifact={**OWN_RECORD, "result": None}),
        ToolMessage("", tool_call_id="1", artifact={**OWN_RECORD, "result": None}),
        answered("", result=None),
        ToolMessage(ANSWER, tool_call_id="1", artifact=[ANSWER]),
        ToolMessage(ANSWER, tool_call_id="1"),
    ],
)
def test_any_other_artifact_is_stored_as_it_is(message: ToolMessage) -> None:
    serde = AllowlistSerializer()

    assert serde.loads_typed(serde.dumps_typed(message)) == message


def test_an_answer_from_before_is_read() -> None:
    whole = JsonPlusSerializer().dumps_typed(answered())

    assert whole[1].count(b"the answer") == 100
    assert AllowlistSerializer().loads_typed(whole) == answered()


@pytest.mark.parametrize("module", ["pathlib", "pathlib._local"])
@pytest.mark.parametrize("name", ["Path", "PosixPath", "WindowsPath"])
def test_a_path_of_another_system_or_python_is_a_path_here(module: str, name: str) -> None:
    assert load(ext(1, [module, name, ["a", "b"]])) == Path("a/b")


def test_an_error_is_kept_as_its_text() -> None:
    serde = AllowlistSerializer()

    assert serde.loads_typed(serde.dumps_typed(ValueError("no"))) == "ValueError('no')"


# Types of users


class Trip(BaseModel):
    """A model of a user's."""

    to: str
    days: int = 1
    stops: list[Trip] = Field(default_factory=list)
    when: date | None = None
    score: float = float("nan")


@dataclasses.dataclass
class Stop:
    """A dataclass of a user's."""

    town: str
    nights: int = 1
    trip: Trip | None = None


class Leg(NamedTuple):
    """A named tuple of a user's."""

    start: str
    end: str


class Means(Enum):
    """An enumeration of a user's."""

    TRAIN = "train"
    FOOT = 2


class Class(IntEnum):
    """An enumeration that is a number, too."""

    FIRST = 1


class Word(StrEnum):
    """An enumeration that is a text, too."""

    YES = "yes"


OWN = [Trip, Stop, Leg, Means, Class, Word]
GIVEN = [
    Trip(to="Rome", stops=[Trip(to="Pisa")], when=date(2025, 1, 2)),
    Stop("Rome", trip=Trip(to="Rome")),
    Leg("Rome", "Pisa"),
    Means.TRAIN,
    Means.FOOT,
    Class.FIRST,
    Word.YES,
]


@pytest.mark.parametrize("value", GIVEN, ids=by_kind)
def test_a_type_that_was_named_comes_back_as_it_was(value: Any) -> None:
    serde = AllowlistSerializer(OWN)

    again = serde.loads_typed(serde.dumps_typed({"held": [value]}))["held"][0]

    assert repr(again) == repr(value)
    assert type(again) is type(value)


@pytest.mark.parametrize("value", GIVEN, ids=by_kind)
def test_a_type_that_was_not_named_is_not_stored(value: Any) -> None:
    with pytest.raises(NotStorable) as refused:
        AllowlistSerializer().dumps_typed({"held": Send("act", [value])})

    assert refused.value.kind == f"{__name__}.{type(value).__name__}"
    assert f"allowed_types=[{type(value).__name__}]" in str(refused.value)


@pytest.mark.parametrize("value", GIVEN, ids=by_kind)
def test_a_type_that_is_named_no_more_is_not_loaded(value: Any) -> None:
    with pytest.raises(CheckpointTampered, match=r"allowed_types=\[") as refused:
        AllowlistSerializer().loads_typed(AllowlistSerializer(OWN).dumps_typed([value]))

    assert f"it holds a {__name__}." in refused.value.why


def test_a_type_within_a_named_type_has_to_be_named_too() -> None:
    with pytest.raises(NotStorable, match=r"Trip"):
        AllowlistSerializer([Stop]).dumps_typed(Stop("Rome", trip=Trip(to="Rome")))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        SecretStr("s3cr3t"),
        re.compile("a"),
        range(3),
        lambda: 1,
        int,
        sys,
        2**64,
        -(2**63) - 1,
        {"\ud800": 1},
        {1, (2, object())},
        type("Human", (HumanMessage,), {})("hi"),
        Send("act", object()),
    ],
    ids=by_kind,
)
def test_what_could_not_be_read_back_is_not_stored(value: Any) -> None:
    with pytest.raises(NotStorable) as refused:
        AllowlistSerializer().dumps_typed([value])

    assert "s3cr3t" not in str(refused.value)


def test_what_is_nested_too_deep_to_be_read_back_is_not_stored() -> None:
    value: Any = 1
    for _ in range(MAX_VALUE_DEPTH + 1):
        value = Send("act", value)
    with pytest.raises(NotStorable, match=r"deep"):
        AllowlistSerializer().dumps_typed(value)

    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(NotStorable):
        AllowlistSerializer().dumps_typed(circle)


def test_the_deepest_that_is_stored_can_be_read_back() -> None:
    serde = AllowlistSerializer()
    value: Any = 1
    depth = 0
    stored = serde.dumps_typed(value)
    with pytest.raises(NotStorable):
        while True:
            stored = serde.dumps_typed(value)
            value, depth = Send("act", value), depth + 1

    assert depth > 10
    assert serde.loads_typed(stored) == value.arg


class Named(BaseModel):
    """A model that cannot be made of its own parts."""

    to: str = Field(alias="To")


class Forgetful(BaseModel):
    """A model that loses what its fields are called."""

    to: str = Field(default="", alias="To")


@dataclasses.dataclass
class Counting:
    """A dataclass with a field that is not given."""

    to: str
    letters: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.letters = len(self.to)


class Pair(Enum):
    """An enumeration whose values come back as lists."""

    BOTH = (1, 2)


@pytest.mark.parametrize(
    "value", [Named(To="Rome"), Forgetful(To="Rome"), Counting("Rome"), Pair.BOTH], ids=by_kind
)
def test_a_value_that_would_not_come_back_as_it_was_is_not_stored(value: Any) -> None:
    with pytest.raises(NotStorable, match=r"made again"):
        AllowlistSerializer([type(value)]).dumps_typed(value)


def namesake(name: str, module: str) -> Any:
    return dataclasses.make_dataclass(name, ["x"], namespace={"__module__": module})


@pytest.mark.parametrize(
    "types",
    [
        [5],
        [int],
        [object],
        [dict],
        [SecretStr],
        [Trip | None],
        [namesake("Trip", "mine"), namesake("Trip", "mine")],
        [namesake("Send", "mine"), type("Send", (Trip,), {"__module__": "mine"}), Stop, "Stop"],
        [namesake("Interrupt", Interrupt.__module__)],
    ],
)
def test_a_type_that_cannot_be_allowed_is_refused(types: Any) -> None:
    with raises_code("invalid_allowed_type"):
        SqliteCheckpointer(":memory:", allowed_types=types)


def test_what_is_allowed_anyway_may_be_named() -> None:
    serde = AllowlistSerializer([HumanMessage, set, Send])

    assert serde.loads_typed(serde.dumps_typed([HumanMessage("hi")])) == [HumanMessage("hi")]


# A foreign graph with a state of its own, in a tree


class Journey(TypedDict):
    """The state of a graph of a user's."""

    messages: list[Any]
    trip: Trip
    stop: Stop


def planner() -> Any:
    def plan(state: Journey) -> dict[str, Any]:
        return {"trip": Trip(to="Rome"), "stop": Stop("Pisa"), "messages": [AIMessage("planned")]}

    builder = StateGraph(Journey)
    builder.add_node("plan", plan)
    builder.add_edge(START, "plan")
    return builder.compile(name="planner")


def tree() -> Agent:
    model = ScriptedModel({"head": [delegate("planner", "plan"), "done"]})
    return Agent("head", model=model, subordinates=[planner()])


def test_a_graph_in_a_tree_keeps_its_own_types_where_they_are_named() -> None:
    with SqliteCheckpointer(":memory:", allowed_types=[Trip, Stop]) as saver:
        assert Session(tree(), saver).send("go").result().text == "done"
        states = [saved.checkpoint["channel_values"] for saved in saver.list(None)]

    assert next(each["trip"] for each in states if "trip" in each).to == "Rome"
    assert next(each["stop"] for each in states if "stop" in each) == Stop("Pisa")


def test_graph_in_a_tree_is_refused_with_the_type_to_name() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(tree(), saver)
        with pytest.raises(NotStorable, match=r"allowed_types=\[(Trip|Stop)\]"):
            session.send("go").result()

        assert len(session.thread_store.get(session.thread_id).messages) == 2


# Nothing stored runs anything


def ext(code: int, parts: Any) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))


def load(stored: bytes, tag: str = "msgpack") -> Any:
    return AllowlistSerializer().loads_typed((tag, stored))


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that is there once the module ``trap`` was imported or called."""
    sung = tmp_path / "sung"
    code = f"import pathlib\ndef sing(*a, **k): pathlib.Path({str(sung)!r}).touch()\nsing()\n"
    (tmp_path / "trap.py").write_text(code + "class Bird:\n    sing = sing\n    __init__ = sing\n")
    monkeypatch.syspath_prepend(tmp_path)
    return sung


@pytest.mark.parametrize(
    "parts",
    [
        ["trap", "sing", "x"],
        ["trap", "sing", []],
        ["trap", "sing", {}],
        ["trap", "Bird", "x", "sing"],
        ["trap", "Bird", {}, "model_validate_json"],
        ["os", "system", "touch sung"],
        ["builtins", "eval", "__import__('trap')"],
        ["importlib", "import_module", ["trap"]],
        ["datetime", "datetime", "x", "strptime"],
        ["langchain_core.messages.human", "HumanMessage", {"content": "x"}, "__init__"],
        ["langchain_core.messages.human", "HumanMessage", {"content": "x"}, "construct"],
    ],
    ids=lambda parts: f"{parts[0]}.{parts[1]}",
)
def test_no_stored_name_is_imported_or_called(canary: Path, parts: list[Any]) -> None:
    for code in (each for each in range(128) if each != SNAPSHOT):
        stored = ext(code, parts)
        inside = ormsgpack.packb(ormsgpack.Ext(SNAPSHOT, b"\x91" + stored))
        for each in (stored, b"\x91" + stored, inside):
            with pytest.raises(CheckpointTampered):
                load(each)

    assert "trap" not in sys.modules
    assert not canary.exists()


class Bomb:
    """Would import the trap, were it unpickled."""

    def __reduce__(self) -> Any:
        return __import__, ("trap",)


@pytest.mark.parametrize("lc", [1, 2])
@pytest.mark.parametrize("kind", ["constructor", "secret", "not_implemented"])
@pytest.mark.parametrize(
    "name",
    [["trap", "Bird"], ["langchain", "schema", "messages", "HumanMessage"], ["uuid", "UUID"]],
)
def test_json_makes_no_object(canary: Path, lc: int, kind: str, name: list[str]) -> None:
    envelope = {"lc": lc, "type": kind, "id": name, "kwargs": {"content": "x"}, "method": "sing"}
    with pytest.raises(CheckpointTampered, match=r"'json'"):
        load(json.dumps(envelope).encode(), "json")

    assert not canary.exists()
    assert load(ormsgpack.packb(envelope)) == envelope


@pytest.mark.parametrize(
    "tag", ["pickle", "json", "msgpack ", "Msgpack", "", "null", "yaml", "aes", None, 5, b"msgpack"]
)
def test_no_other_form_is_read(canary: Path, tag: Any) -> None:
    with pytest.raises(CheckpointTampered):
        load(pickle.dumps(Bomb()), tag)

    assert not canary.exists()


@pytest.mark.parametrize("stored", [None, "text", 5, 1.5])
@pytest.mark.parametrize("tag", ["msgpack", "bytes", "null"])
def test_what_is_no_bytes_is_refused(stored: Any, tag: str) -> None:
    with pytest.raises(CheckpointTampered):
        load(stored, tag)


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\x01\x02",
        b"\xc1",
        b"\xa1\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x00x",
        b"\x91" * 5000 + b"\x01",
        b"\x81\x91\x80\x01",
        ext(0, ["uuid", "UUID", "xyz"]),
        ext(0, ["uuid", "UUID", 5]),
        ext(0, ["uuid", "UUID", "00" * 16, "more"]),
        ext(0, ["uuid", "UUID"]),
        ext(0, ["builtins", "set", "abc"]),
        ext(0, ["builtins", "set", [[1], {}]]),
        ext(0, ["decimal", "Decimal", 5]),
        ext(0, "uuid"),
        ext(0, [["uuid"], "UUID", "00" * 16]),
        ext(1, ["datetime", "date", [2025, 13, 1]]),
        ext(1, ["langgraph.types", "Send", [5, 1]]),
        ext(1, ["langgraph.types", "Send", ["act"]]),
        ext(2, ["langgraph.types", "Interrupt", {"value": 1, "ns": ["x"]}]),
        ext(2, ["langgraph.types", "Interrupt", {"id": "x"}]),
        ext(3, ["datetime", "datetime", "yesterday", "fromisoformat"]),
        ext(5, ["langchain_core.messages.human", "HumanMessage", {}, "model_validate_json"]),
        ext(5, ["langchain_core.messages.human", "HumanMessage", [1], "model_validate_json"]),
        ext(
            5,
            [
                "langchain_core.messages.human",
                "HumanMessage",
                {"content": "x", "type": "ai"},
                "model_validate_json",
            ],
        ),
        ext(6, ["<f8", [1], "C", b"12345678"]),
        ext(4, ["langchain_core.messages.human", "HumanMessage", {"content": "x"}]),
        ext(7, 1)[:-1],
    ],
)
def test_damaged_bytes_are_named_and_nothing_stands_in_for_them(stored: bytes) -> None:
    with pytest.raises(CheckpointTampered):
        load(stored)


def test_no_depth_of_stored_bytes_exhausts_the_stack() -> None:
    stored = ormsgpack.packb(1)
    for _ in range(5_000):
        stored = ormsgpack.packb(ormsgpack.Ext(SNAPSHOT, stored))

    with pytest.raises(CheckpointTampered):
        load(stored)


# The environment

PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_serde import *
found = []
for types in ((), (Trip, Stop)):
    with SqliteCheckpointer(":memory:", allowed_types=types) as saver:
        try:
            found.append(Session(tree(), saver).send("go").result().text)
        except NotStorable as error:
            found.append(type(error).__name__)
for stored in (ext(5, ["test_serde", "Trip", {{"to": "Rome"}}, "model_validate_json"]),
               ext(0, ["builtins", "eval", "1"])):
    try:
        found.append(str(load(stored)))
    except CheckpointTampered as error:
        found.append(type(error).__name__)
print(found)
"""


def test_no_variable_of_the_environment_changes_what_is_stored_and_loaded() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"LANGGRAPH_STRICT_MSGPACK": "true"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stdout == "['NotStorable', 'done', 'CheckpointTampered', 'CheckpointTampered']\n"
