"""What tools, graphs and people return can be stored, and sent to a model in every later turn."""

from __future__ import annotations

import math
import threading
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.types import Command

from echelons import Agent, Session
from echelons.nodes.messages import accept_message, render_value
from echelons.testing import Call, ScriptedModel
from echelons.text.input_limits import INPUT_BYTES

PNG = "iVBORw0KGgo="


def picture(**fields: Any) -> dict[str, Any]:
    return {"type": "image", "base64": PNG, "mime_type": "image/png", **fields}


def nest(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


FAULTY: list[tuple[dict[str, Any], str]] = [
    (picture(base64="not base64!"), "has data that are no base64"),
    (picture(base64="AAAAA"), "has data that are no base64"),
    (picture(base64=""), "has no data"),
    (picture(base64=b"png"), "has no data"),
    (picture(base64="A" * (INPUT_BYTES + 4)), "bytes, with which the result has more than"),
    (picture(mime_type="text/html"), "has the mime_type 'text/html'"),
    (picture(mime_type="image/x-photo"), "is 'image/x-photo', and models read image/gif"),
    (picture(mime_type=None), "has no mime_type"),
    ({"type": "image"}, "has no data"),
    ({"type": "image", "url": "menu.png"}, "has the url 'menu.png'"),
    ({"type": "image", "url": "file:///menu.png"}, "has the url 'file:///menu.png', which no"),
    ({"type": "image_url", "image_url": {"url": "menu.png"}}, "has the url 'menu.png', which no"),
    ({"type": "image_url", "image_url": {"url": ""}}, "has no address"),
    ({"type": "image_url", "image_url": {"url": "data:text/html;base64,AAAA"}}, "is 'text/html'"),
    (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}},
        "has data that are no base64",
    ),
    (
        {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": PNG}},
        "is 'image/bmp'",
    ),
    ({"type": "text", "text": None}, "has no text"),
    ({"type": "file", "base64": PNG}, "has no mime_type"),
    ({"type": "tool_call", "name": "pay", "args": {}, "id": "1"}, "is one that only models write"),
    ({"text": "no type"}, "is no mapping with a type"),
]


@pytest.mark.parametrize(("block", "why"), FAULTY)
def test_block_that_no_model_takes_becomes_a_text_that_says_why(block: Any, why: str) -> None:
    text = {"type": "text", "text": "The menu:"}
    message = ToolMessage([text, block, picture()], tool_call_id="c")

    kept = accept_message(message, {}).content

    assert kept[0] == text
    assert kept[2] == picture()
    assert kept[1]["type"] == "text"  # type: ignore[index]
    assert why in kept[1]["text"]  # type: ignore[index]
    assert "give" not in kept[1]["text"]  # type: ignore[index]


@pytest.mark.parametrize(
    "block",
    [
        picture(),
        picture(base64="iVBO\nRw0K-_o="),
        {"type": "image", "url": "https://example.org/menu.png"},
        {"type": "image", "file_id": "file-1"},
        {"type": "image_url", "image_url": "https://example.org/menu.png"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "file", "base64": PNG, "mime_type": "application/pdf"},
        {"type": "search_result", "title": "a provider's own"},
    ],
)
def test_block_that_models_take_stays_as_it_is(block: Any) -> None:
    message = ToolMessage([block], tool_call_id="c")

    assert accept_message(message, {}) is message


def test_usual_wrong_name_of_a_kind_is_put_right() -> None:
    message = ToolMessage([picture(mime_type="image/JPG")], tool_call_id="c")

    assert accept_message(message, {}).content == [picture(mime_type="image/jpeg")]


def test_pictures_of_one_result_have_a_limit_together() -> None:
    half = picture(base64="A" * (INPUT_BYTES // 2 - 100))
    kept = accept_message(ToolMessage([half, half, half], tool_call_id="c"), {}).content

    assert kept[:2] == [half, half]
    assert kept[2]["type"] == "text"  # type: ignore[index]


def test_blocks_of_models_stay_as_they_are() -> None:
    blocks: list[Any] = [
        {"type": "reasoning", "reasoning": "", "extras": {"signature": "s"}},
        {"type": "thinking", "thinking": "…", "signature": "s"},
    ]
    message = AIMessage(blocks)

    assert accept_message(message, {}) is message


def test_values_that_json_does_not_have_become_texts() -> None:
    block = {"type": "json", "json": {"share": math.nan, "set": {1}, 2: threading.Lock()}}

    content: Any = accept_message(ToolMessage([block], tool_call_id="c"), {}).content

    assert content[0]["json"]["share"] == "NaN"
    assert content[0]["json"]["set"] == [1]
    assert "lock" in content[0]["json"]["2"]


@pytest.mark.parametrize("field", ["artifact", "additional_kwargs", "response_metadata"])
@pytest.mark.parametrize("value", [threading.Lock(), nest(400), {"deep": nest(400)}])
def test_part_that_cannot_be_stored_is_left_out(field: str, value: Any) -> None:
    @tool
    def look(call: Annotated[str, InjectedToolCallId]) -> Any:
        """Look."""
        return ToolMessage("seen", tool_call_id=call, **{field: {"odd": value, "n": 1}})

    session = Session(
        Agent("head", model=ScriptedModel([Call("look"), "over"]), tools=[look]), ":memory:"
    )

    assert session.send("go").result().text == "over"

    stored = session.thread_store.get(session.thread_id).messages
    [answer] = [each for each in stored if isinstance(each, ToolMessage)]
    kept = getattr(answer, field)
    assert answer.text == "seen"
    assert kept["n"] == 1
    assert "[left out: " in str(kept["odd"]) or "[nested too deep]" in str(kept["odd"])


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no text")


LOOP: list[Any] = []
LOOP.append(LOOP)
RESULTS: dict[str, Any] = {
    "none": None,
    "bytes": b"\xff\x00",
    "nan": math.nan,
    "nan in a mapping": {"a": math.nan},
    "lone surrogate": "a\ud83d",
    "lone surrogate as a key": {"\ud83d": 1},
    "keys": {(1, 2): {3}},
    "nested": nest(2_000),
    "circle": LOOP,
    "no text": Odd(),
    "large number": 10**5_000,
    "object": object(),
    "empty list": [],
    "empty text": "",
    "picture": [picture(base64="?")],
    "lock in a block": [{"type": "json", "json": {"lock": threading.Lock()}}],
    "block without text": [{"type": "text"}],
}


@pytest.mark.parametrize("result", RESULTS)
def test_odd_result_leaves_a_thread_that_answers(result: str) -> None:
    def odd() -> Any:
        """Odd."""
        return RESULTS[result]

    def script(messages: Any) -> Any:
        return Call("odd") if messages[-1].text == "go" else "fine"

    agent = Agent("head", model=ScriptedModel(script), tools=[odd])
    with Session(agent, ":memory:", thread="t") as session:
        assert session.send("go").result().text == "fine"
        assert session.send("on").result().text == "fine"


def test_message_that_a_tool_adds_is_checked() -> None:
    @tool
    def look(call: Annotated[str, InjectedToolCallId]) -> Any:
        """Look."""
        shown = HumanMessage([picture(base64="?")])
        return Command(update={"messages": [ToolMessage("seen", tool_call_id=call), shown]})

    model = ScriptedModel(lambda m: Call("look") if m[-1].text == "go" else "fine")
    session = Session(Agent("head", model=model, tools=[look]), ":memory:")

    assert session.send("go").result().text == "fine"
    last: BaseMessage = model.calls[-1].messages[-1]
    assert last.content[0]["text"].startswith("[left out: a block of type image")  # type: ignore[index]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("half \ud83d", "half �"),
        ({"n": math.nan}, '{"n": "NaN"}'),
        (None, "null"),
        ({1: "Forlì"}, '{"1": "Forlì"}'),
    ],
)
def test_answer_of_a_person_becomes_a_text(answer: Any, text: str) -> None:
    assert render_value(answer) == text


def test_file_whose_address_no_provider_opens_becomes_a_text() -> None:
    block = {"type": "file", "url": "file:///menu.pdf", "mime_type": "application/pdf"}
    other = {**block, "url": "https://example.org/menu.pdf"}

    content: Any = accept_message(ToolMessage([block, other], tool_call_id="1"), {}).content

    assert [each["type"] for each in content] == ["text", "file"]
    assert "which no provider opens" in content[0]["text"]
