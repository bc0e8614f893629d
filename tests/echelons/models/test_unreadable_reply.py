"""Replies that a client cannot read are kept: their text, and the names and ids of their calls."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr, ValidationError

from echelons import Agent, Session
from echelons.models.replies import read_unreadable
from echelons.testing import Call, OpenAIServer, Reply


def look(what: str = "x") -> str:
    """Look."""
    return f"seen {what}"


@pytest.mark.parametrize("args", ["[1]", '"x"', "3"])
def test_reply_keeps_its_text_and_calls(args: str) -> None:
    steps = [Reply("I look.", [Call("look", args, id="c1"), Call("look", {}, id="c2")]), "fine"]
    with OpenAIServer(steps) as server:
        model: Any = ChatOpenAI(
            model="gpt-test",
            base_url=server.url,
            api_key=SecretStr("k"),
            use_responses_api=True,
            disable_streaming=True,
        )
        with Session(Agent("head", model=model, tools=[look]), ":memory:") as session:
            assert session.send("go").result().text == "fine"
            said = session.thread_store.get(session.thread_id).messages[1]

    assert isinstance(said, AIMessage) and said.text == "I look."
    [broken] = said.invalid_tool_calls
    assert (broken["name"], broken["args"], broken["id"]) == ("look", args, "c1")
    assert [call["id"] for call in said.tool_calls] == ["c2"]


def test_object_that_was_written_into_a_text_is_used_and_stored() -> None:
    steps = [Call("look", '"{\\"what\\": \\"a\\"}"', id="c1"), "fine", "well"]
    with OpenAIServer(steps) as server:
        model: Any = ChatOpenAI(
            model="gpt-test",
            base_url=server.url,
            api_key=SecretStr("k"),
            use_responses_api=True,
            disable_streaming=True,
        )
        with Session(Agent("head", model=model, tools=[look]), ":memory:") as session:
            assert session.send("go").result().text == "fine"
            messages = session.thread_store.get(session.thread_id).messages
            assert session.send("go").result().text == "well"

    assert messages[2].text == "seen a"


def test_other_error_is_none_of_it() -> None:
    with pytest.raises(ValidationError) as raised:
        AIMessage("", tool_calls=[{"name": None, "args": {}, "id": "1"}])

    assert read_unreadable(raised.value) is None
