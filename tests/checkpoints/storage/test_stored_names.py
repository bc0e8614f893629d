"""Types of ours that users may name keep the name they are stored under, wherever they live."""

from __future__ import annotations

from typing import Any

import pytest

from echelons import Limits, Question, Result, RunEvent
from echelons.checkpoints.storage.serde import CODECS_BY_KEY, AllowlistSerializer
from echelons.delegation import DelegationRequest, DelegationResponse, Status, Usage
from echelons.runtime.run_events import RunEventKind
from echelons.tree.agent_path import AgentPath

OURS = [DelegationRequest, DelegationResponse, Status, Usage, Limits, Question, Result]
OURS += [RunEvent, RunEventKind]
QUESTION = Question("1", "sure?", AgentPath("head/clerk"), "t", "2026-01-01T00:00:00+00:00")
STORED: list[tuple[Any, bytes]] = [
    (Status.PARTIAL, b"\xc7$\x00\x93\xb3echelons.delegation\xa6Status\xa7partial"),
    (
        Usage(input_tokens=1, output_tokens=2),
        (
            b"\xc7Z\x05\x94\xb3echelons.delegation\xa5Usage\x83\xacinput_tokens\x01\xadou"
            b"tput_tokens\x02\xabmodel_calls\x00\xb3model_validate_json"
        ),
    ),
]
"""Values, and how commit b686887 has written them."""


@pytest.mark.parametrize(
    ("value", "stored"), STORED, ids=[type(each).__name__ for each, _ in STORED]
)
def test_a_type_that_has_moved_is_read_and_written_under_its_first_name(
    value: Any, stored: bytes
) -> None:
    serde = AllowlistSerializer(OURS)

    again = serde.loads_typed(("msgpack", stored))

    assert type(again) is type(value)
    assert serde.dumps_typed(again) == serde.dumps_typed(value) == ("msgpack", stored)


GROWN: list[tuple[Any, bytes, bytes]] = [
    (
        RunEvent("head", RunEventKind.TOKEN, "hi"),
        b"\xb7echelons.runtime.events\xa8RunEvent",
        (
            b"\xc7\xe3\x02\x93\xb7echelons.runtime.events\xa8RunEvent\x87\xa4path\xa4head"
            b"\xa4kind\xc7$\x00\x93\xb7echelons.runtime.events\xa4Kind\xa5token\xa7conten"
            b"t\xa2hi\xa9reasoning\xa0\xa5usage\xc7Z\x05\x94\xb3echelons.delegation\xa5Us"
            b"age\x83\xacinput_tokens\x00\xadoutput_tokens\x00\xabmodel_calls\x00\xb3mode"
            b"l_validate_json\xa9thread_id\xa0\xa4data\x80"
        ),
    ),
    (
        Limits(steps=3),
        b"\xafechelons.limits\xa6Limits",
        (
            b"\xc7Z\x05\x94\xafechelons.limits\xa6Limits\x86\xa5depth \xa5steps\x03\xa5ca"
            b"lls\xc0\xa6tokens\xc0\xa7seconds\xc0\xa5width\xc0\xb3model_validate_json"
        ),
    ),
    (
        DelegationRequest(
            id="1", origin="head", current="clerk", task="count", path=AgentPath("head/clerk")
        ),
        b"\xb3echelons.delegation\xb1DelegationRequest",
        (
            b"\xc7\xad\x05\x94\xb3echelons.delegation\xb1DelegationRequest\x8b\xa2id\xa11"
            b"\xa6origin\xa4head\xa7current\xa5clerk\xa4task\xa5count\xa7context\x80\xa4p"
            b"ath\x92\xa4head\xa5clerk\xa8max_hops\n\xa8attempts\x01\xa6budget\x80\xa8dea"
            b"dline\xc0\xa5route\x90\xb3model_validate_json"
        ),
    ),
    (
        DelegationResponse(
            request_id="1",
            agent="clerk",
            result="2",
            status=Status.FULFILLED,
            path=AgentPath("head/clerk"),
            confidence=0.9,
        ),
        b"\xb3echelons.delegation\xb2DelegationResponse",
        (
            b"\xc8\x01(\x05\x94\xb3echelons.delegation\xb2DelegationResponse\x8c\xaareque"
            b"st_id\xa11\xa5agent\xa5clerk\xa6status\xc7&\x00\x93\xb3echelons.delegation"
            b"\xa6Status\xa9fulfilled\xa6result\xa12\xaaconfidence\xcb?\xec\xcc\xcc\xcc"
            b"\xcc\xcc\xcd\xa4path\x92\xa4head\xa5clerk\xa5usage\x83\xacinput_tokens\x00"
            b"\xadoutput_tokens\x00\xabmodel_calls\x00\xa6reason\xa0\xafpartial_results"
            b"\x90\xb5subordinate_responses\x90\xa9thread_id\xa0\xa6failed\xc2\xb3model_v"
            b"alidate_json"
        ),
    ),
    (
        QUESTION,
        b"\xbcechelons.checkpoints.pending\xa8Question",
        (
            b"\xc7\x81\x02\x93\xbcechelons.checkpoints.pending\xa8Question\x86\xa2id\xa11"
            b"\xa5value\xa5sure?\xa4path\x92\xa4head\xa5clerk\xa9thread_id\xa1t\xa8asked_"
            b"at\xb92026-01-01T00:00:00+00:00\xa6schema\xc0"
        ),
    ),
    (
        Result("done", (QUESTION,), False, Usage(model_calls=1), status="asking"),
        b"\xb4echelons.runtime.run\xa6Result",
        (
            b"\xc8\x016\x02\x93\xb4echelons.runtime.run\xa6Result\x86\xa4text\xa4done\xa9"
            b"questions\x91\xc7\x81\x02\x93\xbcechelons.checkpoints.pending\xa8Question"
            b"\x86\xa2id\xa11\xa5value\xa5sure?\xa4path\x92\xa4head\xa5clerk\xa9thread_id"
            b"\xa1t\xa8asked_at\xb92026-01-01T00:00:00+00:00\xa6schema\xc0\xa8finished"
            b"\xc2\xa5usage\xc7Z\x05\x94\xb3echelons.delegation\xa5Usage\x83\xacinput_tok"
            b"ens\x00\xadoutput_tokens\x00\xabmodel_calls\x01\xb3model_validate_json\xa8r"
            b"eplayed\xc2\xa6queued\xc2"
        ),
    ),
]
"""Values of types that have more fields today, their names in msgpack, and how they were stored."""


@pytest.mark.parametrize(
    ("value", "name", "stored"), GROWN, ids=[type(each).__name__ for each, *_ in GROWN]
)
def test_a_type_that_has_grown_is_read_and_written_under_its_first_name(
    value: Any, name: bytes, stored: bytes
) -> None:
    serde = AllowlistSerializer(OURS)

    found = serde.loads_typed(("msgpack", stored))

    # Of both, the tuples are written as lists.
    assert serde.dumps_typed(found) == (again := serde.dumps_typed(value))
    assert name in again[1]
    assert serde.loads_typed(again) == found


def test_a_type_of_a_user_keeps_the_name_that_it_gives() -> None:
    class Trip(Usage):
        """A model that was `trips.Journey` before it moved here."""

        __stored_as__ = "trips.Journey"

    class Flight(Trip):
        """Another type: its name is its own."""

    serde = AllowlistSerializer([Trip, Flight])
    stored = {each: serde.dumps_typed(each()) for each in (Trip, Flight)}

    assert b"\xa5trips\xa7Journey" in stored[Trip][1]
    assert b"\xa5trips" not in stored[Flight][1]
    assert all(type(serde.loads_typed(each)) is kind for kind, each in stored.items())


def test_the_names_of_langchain_and_langgraph_are_those_that_files_hold() -> None:
    # A new version of theirs that moves a type needs its former name beside the new one.
    messages = {f"langchain_core.messages.{each}" for each in MESSAGES}
    theirs = {f"{module}.{name}" for _, module, name in CODECS_BY_KEY if module.startswith("lang")}

    assert theirs == messages | {
        "langchain_core.documents.base.Document",
        "langgraph.types.Interrupt",
        "langgraph.types.Overwrite",
        "langgraph.types.Send",
        "langgraph.types.TimeoutPolicy",
    }


MESSAGES = [
    *("ai.AIMessage", "ai.AIMessageChunk", "chat.ChatMessage", "chat.ChatMessageChunk"),
    *("function.FunctionMessage", "function.FunctionMessageChunk", "modifier.RemoveMessage"),
    *("human.HumanMessage", "human.HumanMessageChunk", "system.SystemMessage"),
    *("system.SystemMessageChunk", "tool.ToolMessage", "tool.ToolMessageChunk"),
]
