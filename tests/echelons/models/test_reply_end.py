"""How a reply ended, from the words of all providers."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from echelons.models.replies import ReplyEnd, read_reply_end


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({"finish_reason": "length"}, "length"),  # OpenAI and many others
        ({"stop_reason": "max_tokens"}, "length"),  # Anthropic
        ({"stop_reason": "model_context_window_exceeded"}, "length"),
        ({"stop_reason": "refusal"}, "refused"),
        ({"stop_reason": "pause_turn"}, "paused"),
        ({"finish_reason": "MAX_TOKENS"}, "length"),  # Gemini, Cohere
        ({"finish_reason": "FinishReason.MAX_TOKENS"}, "length"),
        ({"finish_reason": "SAFETY"}, "filtered"),
        ({"finish_reason": "FinishReason.PROHIBITED_CONTENT"}, "filtered"),
        ({"finish_reason": "RECITATION"}, "filtered"),
        ({"stopReason": "max_tokens"}, "length"),  # Bedrock's Converse
        ({"stopReason": "guardrail_intervened"}, "filtered"),
        ({"stopReason": "content_filtered"}, "filtered"),
        ({"finish_reason": "model_length"}, "length"),  # Mistral
        ({"finish_reason": "content_filter"}, "filtered"),  # Azure
        ({"done_reason": "length"}, "length"),  # Ollama
        ({"finish_reason": "lengthlength"}, "length"),  # two chunks of a stream, merged
        ({"incomplete_details": {"reason": "max_output_tokens"}}, "length"),  # Responses
        ({"incomplete_details": {"reason": "content_filter"}}, "filtered"),
        ({}, "complete"),
        ({"finish_reason": "tool_calls"}, "complete"),
        ({"stop_reason": "tool_use", "stop_sequence": None}, "complete"),
        ({"stop_reason": "stop_sequence"}, "complete"),
        ({"finish_reason": None, "incomplete_details": None}, "complete"),
        ({"finish_reason": ["length"]}, "complete"),
        ({"finish_reason": "a word of tomorrow"}, "complete"),
    ],
    ids=repr,
)
def test_words_of_all_providers_are_known(metadata: dict[str, Any], kind: str) -> None:
    end = read_reply_end(AIMessage("text", response_metadata=metadata))

    assert end.kind == kind
    assert bool(end.why) == (kind != "complete")


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", additional_kwargs={"refusal": "I may not."}),
        AIMessage([{"type": "refusal", "refusal": "I may not."}]),
        AIMessage("I may not.", response_metadata={"stop_reason": "refusal"}),
    ],
)
def test_words_of_a_refusal_are_its_reason(message: AIMessage) -> None:
    assert read_reply_end(message) == ReplyEnd("refused", "I may not.")


@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "reasoning", "reasoning": "hm"}]])
def test_reply_without_text_and_calls_is_empty(content: Any) -> None:
    assert read_reply_end(AIMessage(content)).kind == "empty"


def test_reason_of_an_empty_reply_is_the_word_of_its_provider() -> None:
    metadata = {"finish_reason": "MALFORMED_FUNCTION_CALL"}
    end = read_reply_end(AIMessage("", response_metadata=metadata))

    assert end == ReplyEnd("empty", "finish_reason: MALFORMED_FUNCTION_CALL")
    assert read_reply_end(AIMessage("", response_metadata={"finish_reason": "stop"})).why == ""


def test_task_that_a_provider_has_blocked_is_filtered() -> None:
    metadata = {"prompt_feedback": {"block_reason": "SAFETY"}}

    assert read_reply_end(AIMessage("", response_metadata=metadata)).kind == "filtered"
