"""Refusals for length are known from those for other reasons, and so is what they name."""

from __future__ import annotations

import pytest
from langchain_core.exceptions import ContextOverflowError

from echelons.models.replies import read_length_refusal

REFUSALS = [
    # OpenAI, Azure, DeepSeek, OpenRouter, older and newer vLLM
    ("400 context_length_exceeded", 0, 0),
    ("context_length_exceeded: reduce the length of the messages", 0, 0),
    (
        "This model's maximum context length is 4096 tokens. However, your messages resulted in "
        "5000 tokens. Please reduce the length of the messages.",
        4096,
        5000,
    ),
    (
        "This model's maximum context length is 8,192 tokens. However, you requested 8203 tokens "
        "(7691 in the messages, 512 in the completion).",
        8192,
        8203,
    ),
    (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
        "300000 tokens.",
        272000,
        300000,
    ),
    ("Your input exceeds the context window of this model.", 0, 0),
    (
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        4096,
        5000,
    ),
    (
        "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
        4096,
        25938,
    ),
    # Anthropic, Bedrock
    ("prompt is too long: 208310 tokens > 200000 maximum", 200000, 208310),
    (
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease "
        "input length or `max_tokens` and try again",
        200000,
        0,
    ),
    ("413 request_too_large: Request exceeds the maximum size", 0, 0),
    ("ValidationException: Input is too long for requested model.", 0, 0),
    # Gemini
    (
        "400 The input token count (1200000) exceeds the maximum number of tokens allowed "
        "(1048576).",
        1048576,
        1200000,
    ),
    # Mistral, llama.cpp, LM Studio, Ollama, SGLang, TGI
    (
        "Prompt contains 33000 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
        32768,
        33000,
    ),
    (
        "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        4096,
        5000,
    ),
    ('{"type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}', 4096, 5000),
    ("the request exceeds the available context size, try increasing it", 0, 0),
    ("tokens to keep from the initial prompt is greater than the context length", 0, 0),
    ("prompt too long; exceeded max context length by 4096 tokens", 0, 0),
    (
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        4096,
        5000,
    ),
    ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", 4096, 5000),
    ("length of prompt_tokens (163280) must be less than max_seq_len (32768).", 32768, 163280),
    (
        "This model's maximum context length is 4096 tokens. However, you requested 512 output "
        "tokens and your prompt contains at least 5000 input tokens, for a total of at least 5512 "
        "tokens. Please reduce the length of the input prompt.",
        4096,
        5512,
    ),
    ("max_tokens must be at least 1, got -186.", 0, 0),
    ("The engine prompt length 33000 exceeds the max_model_len 32768.", 32768, 33000),
    ("Requested tokens (2285) exceed context window of 2048", 2048, 2285),
    ("the input length exceeds the context length", 0, 0),
    (
        "Trying to keep the first 4687 tokens when context the overflows. However, the model is "
        "loaded with context length of only 4096 tokens, which is not enough.",
        4096,
        4687,
    ),
    ("Input validation error: `inputs` must have less than 1024 tokens. Given: 1200", 1024, 1200),
    # Gemini at Vertex, Nova and others at Bedrock
    (
        "Unable to submit request because the input token count is 1100000 but model only supports "
        "up to 1048576. Reduce the input token count and try again.",
        1048576,
        1100000,
    ),
    ("Request payload size exceeds the limit: 20971520 bytes.", 20971520, 0),
    ("Input Tokens Exceeded: Number of input tokens exceeds maximum length.", 0, 0),
    ("too many tokens: size limit exceeded by 90 tokens. Try using shorter or fewer inputs", 0, 0),
    # One message of OpenAI's; Doubao
    (
        "Invalid 'messages[3].content': string too long. Expected a string with maximum length "
        "10485760, but got a string with length 11000000 instead.",
        10485760,
        11000000,
    ),
    ("Total tokens of image and text exceed max message tokens", 0, 0),
    # Groq, xAI, Kimi, Cerebras, GitHub, GLM, DashScope, MiniMax, Cohere
    (
        "413 Request too large for model `llama` on tokens per minute (TPM): Limit 6000, Requested "
        "9000, please reduce your message size and try again.",
        6000,
        9000,
    ),
    (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        131072,
        537812,
    ),
    ("Your request exceeded model token limit: 262144 (requested: 300000)", 262144, 300000),
    (
        "Please reduce the length of the messages. Current length is 9000 while limit is 8192",
        8192,
        9000,
    ),
    (
        "tokens_limit_reached: Request body too large for gpt-4o model. Max size: 8000 tokens.",
        8000,
        0,
    ),
    ("Too many input tokens. Max input tokens: 4096, request input token count: 5000", 4096, 5000),
    ("prompt token count of 145000 exceeds the limit of 128000", 128000, 145000),
    ("Prompt exceeds max length", 0, 0),
    ("Range of input length should be [1, 30720]", 30720, 0),
    ("invalid params, context window exceeds limit", 0, 0),
    ("too many tokens: total number of tokens in the prompt cannot exceed 4081", 0, 0),
]
OTHERS = [
    "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000",
    "429 Too Many Requests",
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "You exceeded your current quota, please check your plan",
    "Invalid 'tools': maximum number of items is 128",
    "max_tokens is too large: 100000. This model supports at most 4096 completion tokens",
    "Invalid value for 'content': expected a string, got null",
    "Connection error.",
    "the file is too long",
    "Invalid 'tools[0].function.name': string too long. Expected maximum length 64, got 70",
    "This model supports at most 4096 completion tokens, whereas you provided 8000.",
    "max_tokens must be at least 1, got 0.",
]


@pytest.mark.parametrize(("text", "limit", "requested"), REFUSALS)
def test_a_refusal_for_length_is_read(text: str, limit: int, requested: int) -> None:
    assert read_length_refusal(ValueError(text)) == (limit, requested)
    assert read_length_refusal(ValueError(text.upper()))


@pytest.mark.parametrize("text", OTHERS)
def test_another_error_is_no_refusal_for_length(text: str) -> None:
    assert read_length_refusal(ValueError(text)) is None


def test_length_refusal_is_recognised_by_class_status_or_cause() -> None:
    class TooLarge(Exception):
        status_code = 413

    assert read_length_refusal(ContextOverflowError("no"))
    assert read_length_refusal(TooLarge())
    error = RuntimeError("the model has failed")
    error.__cause__ = ValueError("prompt is too long")
    assert read_length_refusal(error)
    assert read_length_refusal(KeyboardInterrupt("prompt is too long")) is None
