"""A task of content blocks: a text, a picture and a file, as the root's model gets them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from echelons import Agent, Result, Session
from echelons.testing import OpenAIServer, Reply, ScriptedModel, delegate
from echelons.text.input_limits import INPUT_BYTES, MESSAGE_BYTES
from tests.error_codes import raises_code

WORDS = {"type": "text", "text": "What is on it?"}
PICTURE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
FILE = {"type": "file", "base64": "JVBERi0=", "mime_type": "application/pdf", "filename": "a.pdf"}
BLOCKS: list[dict[str, Any]] = [WORDS, PICTURE, FILE]


def send(session: Session, task: Any, in_loop: bool, turn_id: str | None = None) -> Result:
    if not in_loop:
        return session.send(task, turn_id=turn_id).result()

    async def wait() -> Result:
        run = await session.asend(task, turn_id=turn_id)
        return await run.result()

    return asyncio.run(wait())


@pytest.mark.parametrize("in_loop", [False, True])
def test_the_model_of_the_root_sees_a_picture_and_a_file_and_its_subordinate_the_text(
    tmp_path: Path, in_loop: bool
) -> None:
    script = [
        Reply(calls=[delegate("mid", "Describe it")]),
        Reply(calls=[delegate("leaf", "Look at it")]),
        "A leaf",
        "A tree",
        "A wood",
        "The same wood",
    ]
    with OpenAIServer(script) as server:
        model = ChatOpenAI(model="m", base_url=server.url, api_key="x")  # type: ignore[arg-type]
        mid = Agent("mid", subordinates=[Agent("leaf")])
        head = Agent("head", model=model, subordinates=[mid])
        with Session(head, tmp_path / "t.sqlite") as session:
            assert send(session, BLOCKS, in_loop).text == "A wood"
        # The next turn of the thread has the picture in its history, also in another process.
        with Session(head, tmp_path / "t.sqlite") as later:
            assert send(later, "And now?", in_loop).text == "The same wood"
        asked = [request.messages for request in server.requests]

    sent = [
        WORDS,
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {
            "type": "file",
            "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"},
        },
    ]
    users = [[each["content"] for each in said if each["role"] == "user"] for said in asked]
    assert users[0] == users[4] == [sent]
    assert users[1] == users[3] == ["Describe it"]
    assert users[2] == ["Look at it"]
    assert users[5] == [sent, "And now?"]


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_turn_of_blocks_is_known_by_all_of_them(tmp_path: Path, in_loop: bool) -> None:
    head = Agent("head", model=ScriptedModel(["seen"]))
    with Session(head, tmp_path / "t.sqlite") as session:
        assert send(session, BLOCKS, in_loop, "1").text == "seen"
    with Session(head, tmp_path / "t.sqlite") as later:
        turned = tuple(dict(reversed(each.items())) for each in BLOCKS)
        again = send(later, turned, in_loop, "1")
        with raises_code("turn_reused"):
            send(later, [WORDS, {**PICTURE, "base64": "iVBORw0KGgp="}, FILE], in_loop, "1")

    assert (again.text, again.replayed) == ("seen", True)


def test_the_task_of_a_run_is_what_was_sent_even_if_its_blocks_are_changed_meanwhile() -> None:
    model = ScriptedModel(["seen"])
    blocks = [{"type": "text", "text": "one"}]
    with Session(Agent("head", model=model), ":memory:") as session:
        run = session.send(blocks)
        blocks[0]["text"] = "two"
        run.result()

    assert model.calls[0].messages[-1].text == "one"


def test_an_event_shows_the_text_and_names_the_rest() -> None:
    with Session(Agent("head", model=ScriptedModel(["seen"])), ":memory:") as session:
        task = next(iter(session.send(BLOCKS)))
        session.stop()

    assert (task.kind, task.content) == ("task", "What is on it?\n[image]\n[a.pdf]")


def test_the_offline_planner_reads_the_text_of_the_blocks() -> None:
    def find_food(place: str) -> str:
        """Find places to eat.

        Args:
            place: A city.
        """
        return f"Osteria in {place}"

    food = Agent("food", "Finds food", tools=[find_food], capabilities={"food": 0.9})
    parts = [{"type": "text", "text": text} for text in ("Find food", "in Bologna")]
    with Session(Agent("head", subordinates=[food]), ":memory:") as session:
        assert "Osteria in Bologna" in session.send([parts[0], PICTURE, parts[1]]).result().text


def test_a_picture_without_words_is_a_task_too() -> None:
    model = ScriptedModel(["seen"])
    with Session(Agent("head", model=model), ":memory:") as session:
        assert session.send([PICTURE]).result().text == "seen"

    assert model.calls[0].messages[-1].content == [PICTURE]


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (["plan"], "block 1 is no mapping with a type"),
        ([WORDS, {"text": "x"}], "block 2 is no mapping with a type"),
        ([WORDS, {"type": 5}], "block 2 is no mapping with a type"),
        ([{"type": "text"}], "block 1, of type 'text', has no text"),
        ([{"type": "text", "text": " \n"}], "it has no words and no data"),
        ([WORDS, {"type": "image"}], "block 2, of type 'image', has no data: give it one of url"),
        ([{"type": "file", "base64": ""}], "block 1, of type 'file', has no data"),
        ([{"type": "image", "base64": "x"}], "block 1, of type 'image', has no mime_type"),
        (
            [{"type": "tool_call", "name": "pay", "args": {}, "id": "1"}],
            "block 1, of type 'tool_call', is one that only models write",
        ),
        ([{"type": "image", "base64": b"x", "mime_type": "image/png"}], "has no data"),
        ([{**PICTURE, "base64": "!!!"}], "has data that are no base64"),
        ([{**PICTURE, "base64": "iVBORw0\u00e9"}], "has data that are no base64"),
        ([{**PICTURE, "mime_type": "text/plain"}], "has the mime_type 'text/plain': .*'image/png'"),
        ([{**PICTURE, "mime_type": 7}], "has the mime_type 7"),
        ([{"type": "image", "url": "not an url"}], "has the url 'not an url': give a whole one"),
        ([WORDS, {"type": "image_url"}], "block 2, of type 'image_url', has no address"),
        ([{"type": "image_url", "image_url": {}}], "block 1, of type 'image_url', has no address"),
    ],
)
def test_blocks_that_no_model_could_be_sent_are_refused_by_name(task: Any, why: str) -> None:
    with Session(Agent("head"), ":memory:") as session:
        with raises_code("invalid_task", match=why):
            session.send(task)
        assert session.threads() == []


@pytest.mark.parametrize(
    "block",
    [
        {**PICTURE, "base64": "iVBO\nRw0KGgo"},
        {**PICTURE, "base64": "-_8="},
        {"type": "image", "url": "data:image/png;base64,iVBORw0KGgo="},
        {"type": "image", "url": "gs://menus/menu.jpg", "mime_type": "image/jpeg"},
        {"type": "image", "file_id": "file-1"},
        {"type": "image_url", "image_url": {"url": "https://example.org/menu.jpg"}},
        {"type": "image_url", "image_url": "https://example.org/menu.jpg"},
    ],
    ids=str,
)
def test_blocks_that_some_client_can_send_are_passed_on(block: Any) -> None:
    model = ScriptedModel(["seen"], strict=False)
    with Session(Agent("head", model=model), ":memory:") as session:
        assert session.send([block]).result().text == "seen"

    assert model.calls[0].messages[-1].content == [block]


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ([WORDS, {"type": "document", "data": b"x"}], "invalid_value"),
        ([{"type": "text", "text": "half \ud83d"}], "invalid_text"),
        ([{"type": "text", "text": "x" * (MESSAGE_BYTES + 1)}], "input_too_large"),
        ([WORDS, {**PICTURE, "base64": "x" * (INPUT_BYTES + 1)}], "input_too_large"),
    ],
)
def test_blocks_that_cannot_be_stored_are_refused(task: Any, error: str) -> None:
    with Session(Agent("head"), ":memory:") as session:
        with raises_code(error, match="the task"):
            session.send(task)
        assert session.threads() == []


def test_a_picture_may_be_larger_than_a_text(tmp_path: Path) -> None:
    large = {**PICTURE, "base64": "x" * (3 * MESSAGE_BYTES)}
    model = ScriptedModel(["seen", "seen"])
    head = Agent("head", guidance="", model=model)
    with Session(head, tmp_path / "t.sqlite") as session:
        assert session.send([WORDS, large]).result().finished
    with Session(head, tmp_path / "t.sqlite") as later:
        assert later.send("Again").result().finished
    head.compile().invoke({"messages": [("user", [WORDS, large])]})

    assert model.calls[1].messages[0].content == [WORDS, large]
