"""`read_length_refusal`: whether a provider has refused a request for its length. Pure.

LangChain has a class for it, which few clients raise. For all others the text decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from langchain_core.exceptions import ContextOverflowError

from echelons.text.error_lines import read_error_text

_MOST_REQUESTED: Final = 50
"""A number of more than so many times the limit is no number of tokens."""
_LEAST_LIMIT: Final = 512
"""Codes of a status are below, and no context is so small."""
_MOST_DIGITS: Final = 11
_TOO_LARGE: Final = 413
_MAX_TEXT: Final = 20_000

_REFUSALS: Final = re.compile(
    "|".join(
        (
            # OpenAI, Azure, DeepSeek, OpenRouter, vLLM, and generic ones.
            r"context[ _-]?(length|window|size|limit)[ _-](is |has been |was )?exceed",
            r"contextwindowexceeded",
            r"maximum context (length|size|window)",
            r"exceed\w* (\w+'?s? ){0,5}context",
            r"exceed_context_size",
            r"(input|prompt) tokens exceed",
            r"reduce (the |your )?(length|size) of (the |your )?(messages|prompt|input)",
            # Anthropic, and Claude at Bedrock and Vertex.
            r"(prompt|input|request|message|conversation|context)s? (is|are) too (long|large)",
            r"request_too_large|request exceeds the maximum size",
            # Gemini.
            r"(token count|input tokens?|number of (input )?tokens)\b.{0,40}\bexceeds?",
            r"token count\b.{0,40}\bonly supports up to|payload size exceeds",
            # Mistral, llama.cpp, LM Studio, Ollama, vLLM, SGLang, Together, TGI.
            r"too large for model with",
            r"(greater|longer) than (the |this )?(\w+'?s? )*(context|maximum model) length",
            r"(prompt|input)s? too long",
            r"context length (is|of) only",
            r"the configured context size is",
            r"too long to fit into the model",
            r"context the overflows|context overflow|overflows? the context",
            r"`?inputs`? tokens \+ `?max_new_tokens`? must be",
            r"must be less than max_seq_len",
            # vLLM, whose room for the reply is what the prompt leaves.
            r"max_tokens must be at least 1, got -|exceeds the max_model_len",
            r"`?inputs`? must have less than \d",
            # OpenAI: one message of more characters than any may have.
            r"messages?\[\d+\].{0,40}string too long",
            # Groq and OpenAI: more than the limit of a minute in one request.
            r"reduce your message size|request too large|request body too large",
            # Cohere, xAI, GitHub, Kimi, Cerebras, GLM, DashScope, MiniMax.
            r"too many (input )?tokens|token limit exceeded|exceeded model token limit",
            r"prompt_tokens_exceeded|tokens_limit_reached|exceed max message tokens",
            r"input length\b.{0,20}\bexceeds",
            r"maximum (prompt|input|allowed input) length",
            r"exceeds the limit of \d",
            r"current length is \d+ while limit is",
            r"prompt exceeds",
            r"range of input length should be",
        )
    ),
    re.IGNORECASE,
)
"""What servers write that have refused a request for its length."""
_OTHER_LIMITS: Final = re.compile(
    r"throttl|rate.?limit|too many requests|quota|please wait|per (minute|day)", re.IGNORECASE
)
"""What is said of limits that a later request of the same length would keep."""
_NEVER_FITS: Final = re.compile(
    r"reduce your message size|request (body )?too large", re.IGNORECASE
)
_LIMIT: Final = re.compile(
    r"(?:max\w* (?:\w+ )?(?:context |prompt |model |allowed )?(?:input )?"
    r"(?:length|size|window|limit)"
    r"|maximum number of (?:input )?tokens(?: allowed)?|context (?:length|size|window|limit)"
    r"|token limit|limit is|limit of|\blimit\b|must be <=|n_ctx|less than max_seq_len"
    r"|max_model_len|must have less than|only supports up to|max input tokens"
    r"|length should be \[\d+,)"
    r"(?:(?! by )[^0-9]){0,24}?(\d[\d,_]*)"
    r"|(\d[\d,_]*)(?: tokens?)? max",
    re.IGNORECASE,
)
_MOST: Final = re.compile(r"> ?(\d[\d,_]*)")
_NUMBER: Final = re.compile(r"(?<![\w.-])\d[\d,_]*\b(?!\.\d)")


class LengthRefusal(NamedTuple):
    """A provider's refusal of a request for its length."""

    limit: int = 0
    requested: int = 0


def read_length_refusal(error: BaseException) -> LengthRefusal | None:
    """Return what an error says of the length of a request; `None` if it is no such refusal."""
    # Pauses of LangGraph are exceptions, too.
    if not isinstance(error, Exception) or type(error).__module__.startswith("langgraph."):
        return None
    for cause in _iterate_causes(error):
        text = read_error_text(cause)[:_MAX_TEXT]
        is_refusal = isinstance(cause, ContextOverflowError) or (
            getattr(cause, "status_code", None) == _TOO_LARGE
        )
        if not is_refusal and _REFUSALS.search(text):
            is_refusal = not _OTHER_LIMITS.search(text) or bool(_NEVER_FITS.search(text))
        if is_refusal:
            return _read_numbers(text)
    return None


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes: some clients wrap those of their servers."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        seen.append(one)
        yield one
        one = one.__cause__


def _read_numbers(text: str) -> LengthRefusal:
    # Of a comparison, the right side is the limit, whatever stands before it.
    limits = [_to_number(match[1]) for match in _MOST.finditer(text)]
    limits += [_to_number(match[1] or match[2]) for match in _LIMIT.finditer(text)]
    limit = next((item for item in limits if item >= _LEAST_LIMIT), 0)
    numbers = [_to_number(found[0]) for found in _NUMBER.finditer(text)]
    requested = [number for number in numbers if limit < number <= limit * _MOST_REQUESTED]
    return LengthRefusal(limit, max(requested, default=0))


def _to_number(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else 0
