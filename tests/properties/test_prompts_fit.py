"""Whatever a conversation is, what a model reads of it fits, and is well-formed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from echelons.errors import InvalidInput
from echelons.features.feature import Prompt
from echelons.features.memory.prompt_memory import PromptMemory
from echelons.identity.lineage import ASIDE_KEY, PIN_KEY, Identity
from echelons.memory import Memory
from echelons.models.fitting import (
    count_cautiously,
    find_task,
    fit_messages,
    is_sealed,
    shorten_message,
)
from echelons.nodes.long_results import TokenCounter
from echelons.plans import run_plan_steps
from tests.proof import sample

PICTURE = {"type": "image", "base64": "A" * 4000, "mime_type": "image/png"}


def build_text(size: int) -> str:
    return "旅館 and word " * (size // 12) + "x" * (size % 12)


sizes = st.sampled_from([0, 1, 30, 400, 3000, 90_000])
texts = sizes.map(build_text)
arguments = st.dictionaries(
    st.sampled_from(["path", "text", "rows"]),
    st.one_of(
        texts,
        st.integers(0, 9),
        st.lists(st.integers(0, 9), max_size=3),
        sizes.map(range).map(list),
    ),
    max_size=3,
)
results = st.one_of(texts, texts.map(lambda text: [{"type": "text", "text": text}, PICTURE]))
contents = st.one_of(texts, texts.map(lambda text: [{"type": "text", "text": text}, PICTURE]))
sealed = st.one_of(st.none(), sizes)


@st.composite
def conversations(draw: st.DrawFn) -> list[BaseMessage]:
    """Return a conversation at a moment at which its model is called."""
    messages: list[BaseMessage] = []

    def add(message: BaseMessage) -> None:
        messages.append(message.model_copy(update={"id": str(len(messages))}))

    for _ in range(draw(st.integers(1, 5))):
        add(HumanMessage(cast("Any", draw(contents))))
        for _ in range(draw(st.integers(0, 4))):
            if draw(st.integers(0, 5)) == 0:
                add(HumanMessage(draw(texts), response_metadata={ASIDE_KEY: {"sender": "north"}}))
            calls = [
                {
                    "name": "write",
                    "args": args,
                    "id": f"c{len(messages)}-{place}",
                    "type": "tool_call",
                }
                for place, args in enumerate(draw(st.lists(arguments, min_size=1, max_size=3)))
            ]
            text, thinking = draw(texts), draw(sealed)
            content: Any = text
            if thinking is not None:
                blocks = [
                    {"type": "tool_use", "id": each["id"], "name": "write", "input": each["args"]}
                    for each in calls
                ]
                thought = {"type": "thinking", "thinking": build_text(thinking), "signature": "s"}
                content = [thought, *blocks] if draw(st.booleans()) else blocks
            add(AIMessage(content, tool_calls=cast("Any", calls)))
            for call in calls:
                metadata = {PIN_KEY: "a fact"} if draw(st.integers(0, 6)) == 0 else {}
                add(
                    ToolMessage(
                        cast("Any", draw(results)),
                        tool_call_id=call["id"],
                        response_metadata=metadata,
                    )
                )
        if draw(st.booleans()):
            add(AIMessage(draw(texts)))
    if isinstance(messages[-1], AIMessage):
        add(HumanMessage(draw(texts)))
    return messages


def check_form(shown: Sequence[BaseMessage], whole: Sequence[BaseMessage]) -> None:
    """Check that calls have their results, and that what is sealed was not changed."""
    given = {each.id: each for each in whole}
    pending: list[str] = []
    for message in shown:
        if isinstance(message, ToolMessage):
            assert pending.pop(0) == message.tool_call_id
            continue
        assert not pending
        if isinstance(message, AIMessage):
            pending = [str(each["id"]) for each in message.tool_calls]
            assert all(isinstance(each["args"], dict) for each in message.tool_calls)
            json.dumps([each["args"] for each in message.tool_calls])
            blocks = [each for each in message.content if isinstance(each, dict)]
            used = [each for each in blocks if each["type"] == "tool_use"]
            assert [each["input"] for each in used] in (
                [],
                [each["args"] for each in message.tool_calls],
            )
            if is_sealed(original := given[message.id]):
                assert message == original
    assert not pending


def order(messages: Sequence[BaseMessage]) -> list[int]:
    return [int(each.id) for each in messages if each.id]


@settings(max_examples=sample(60, 5000), deadline=None)
@given(conversations(), texts, st.integers(0, 30_000))
def test_a_conversation_fits_whatever_it_is_and_whatever_the_limit(
    messages: list[BaseMessage], prompt: str, limit: int
) -> None:
    system = SystemMessage(prompt)
    shown = fit_messages([system, *messages], limit, count_cautiously)

    assert shown[0] is system
    check_form(shown, messages)
    assert order(shown) == sorted(order(shown))
    # The task is there, though it may have to be cut.
    task = messages[find_task(messages)]
    assert task.id in [each.id for each in shown]
    if limit >= count_cautiously([system, shorten_message(task, 0)]):
        assert count_cautiously(shown) <= limit
    if count_cautiously([system, *messages]) <= limit:
        assert shown == [system, *messages]


def remember(
    messages: list[BaseMessage], system: SystemMessage, budget: int
) -> tuple[list[BaseMessage], Callable[[Sequence[BaseMessage]], int]]:
    """Return what a model reads with a memory, and what counts its tokens."""
    memory = PromptMemory(Memory(budget=budget, recent=2, summarizer="extractive"))
    config: Any = {"metadata": Identity("head", ("head",), "t", "tree").to_metadata()}
    view = run_plan_steps(memory.shorten(Prompt(system, messages), config))
    assert view.system is not None
    return [view.system, *view.messages], TokenCounter.build(messages).count


@settings(max_examples=sample(60, 5000), deadline=None)
@given(conversations(), sizes.map(build_text), st.integers(400, 30_000))
def test_a_memory_fits_whatever_it_holds_unless_what_must_stay_does_not(
    messages: list[BaseMessage], prompt: str, budget: int
) -> None:
    system = SystemMessage(prompt)
    task = messages[find_task(messages)]
    try:
        shown, count = remember(messages, system, budget)
    except InvalidInput as error:
        assert error.code == "context_too_large"
        pins = sum(PIN_KEY in each.response_metadata for each in messages)
        # With the line that stands before the pins.
        assert count_cautiously([system, task]) + 40 * (pins > 0) + 6 * pins > budget
        return
    assert count(shown) <= budget
    assert shown[0].text.startswith(prompt)
    assert task in shown
    check_form(shown[1:], messages)
    assert order(shown) == sorted(order(shown))
