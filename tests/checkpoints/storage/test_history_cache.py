"""What a caller does to returned messages, however deep, is not what the next one gets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.checkpoints.storage.cached_saver import CopyOnReadMessages


def build_messages() -> list[BaseMessage]:
    call = {"name": "look", "args": {"at": ["Rome"]}, "id": "1", "type": "tool_call"}
    return [
        HumanMessage("go", id="a", note={"by": ["hand"]}),
        AIMessage("", id="b", tool_calls=[call], response_metadata={"model": {"name": "m"}}),
        ToolMessage(
            "seen", id="c", tool_call_id="1", artifact={"at": {datetime(2026, 1, 1, tzinfo=UTC)}}
        ),
    ]


CHANGES: list[Callable[[list[Any]], object]] = [
    lambda messages: setattr(messages[0], "content", "spoiled"),
    lambda messages: messages[0].note["by"].append("spoiled"),
    lambda messages: messages[1].tool_calls[0]["args"]["at"].append("spoiled"),
    lambda messages: messages[1].response_metadata["model"].clear(),
    lambda messages: messages[1].additional_kwargs.update(spoiled=True),
    lambda messages: messages[2].artifact["at"].clear(),
    lambda messages: setattr(messages[2], "spoiled", True),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_returned_message_is_not_returned_again(
    change: Callable[[list[Any]], object],
) -> None:
    shown = CopyOnReadMessages(build_messages())

    change(shown.messages())

    assert shown.messages() == build_messages()
    # Nor is one of what is returned in its place.
    change(shown.messages())
    assert shown.messages() == build_messages()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_before_the_next_point_is_not_in_its_copies(
    change: Callable[[list[Any]], object],
) -> None:
    first = CopyOnReadMessages(build_messages())
    later = CopyOnReadMessages([*first.messages(), HumanMessage("on", id="d")], first)

    change(later.messages())

    assert later.messages() == [*build_messages(), HumanMessage("on", id="d")]


def test_unchanged_value_is_the_same_object() -> None:
    shown = CopyOnReadMessages(build_messages())
    first = shown.messages()

    assert all(one is other for one, other in zip(first, shown.messages(), strict=True))


def test_of_messages_in_another_order_the_copies_are_those_of_the_same_objects() -> None:
    first = CopyOnReadMessages(build_messages())
    *begin, last = first.messages()
    later = CopyOnReadMessages([last, HumanMessage("on", id="d"), *begin], first)

    last.content = "spoiled"
    later.messages()[1].content = "spoiled"

    assert [each.content for each in later.messages()] == ["seen", "on", "go", ""]
