"""Tokens are counted by what is at hand: a report of the model, an encoding, or characters."""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha1, sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import tiktoken.registry
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from echelons.identity.lineage import PROMPT_KEY
from echelons.nodes import long_results
from echelons.nodes.long_results import (
    APPROXIMATION_KEY,
    ENCODING_URL,
    ENCODINGS,
    TokenCounter,
    find_encoding,
)

PLUGIN = """
from tiktoken.load import load_tiktoken_bpe


def tiny():
    ranks = load_tiktoken_bpe({url!r}, expected_hash={digest!r})
    return {{
        "name": "tiny",
        "pat_str": r"\\w+|\\s+|[^\\w\\s]+",
        "mergeable_ranks": ranks,
        "special_tokens": {{}},
    }}


ENCODING_CONSTRUCTORS = {{"tiny": tiny}}
"""
RANKS = [*(bytes([each]) for each in range(256)), b"ro", b"me", b"rome"]
"""Of a byte-pair encoding in which "rome" is one token, and any other letter one."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that puts a small encoding where tiktoken keeps its files."""
    url = ENCODING_URL.format("tiny")
    lines = [f"{b64encode(each).decode()} {rank}" for rank, each in enumerate(RANKS)]
    whole = "\n".join(lines).encode()
    digest = sha256(whole).hexdigest()
    plugins = tmp_path / "plugins" / "tiktoken_ext"
    plugins.mkdir(parents=True)
    (plugins / "tiny.py").write_text(PLUGIN.format(url=url, digest=digest))
    monkeypatch.syspath_prepend(plugins.parent)
    monkeypatch.setattr(tiktoken.registry, "ENCODING_CONSTRUCTORS", None)
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setattr(long_results, "ENCODINGS", {**ENCODINGS, "tiny": digest})
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    find_encoding.cache_clear()

    def write(data: bytes = whole) -> None:
        (folder / sha1(url.encode(), usedforsecurity=False).hexdigest()).write_bytes(data)
        find_encoding.cache_clear()

    yield write
    find_encoding.cache_clear()


def test_the_files_of_the_encodings_are_those_that_tiktoken_keeps() -> None:
    openai_public = import_module("tiktoken_ext.openai_public")
    for name, digest in ENCODINGS.items():
        source = inspect.getsource(getattr(openai_public, name))
        assert ENCODING_URL.format(name) in source
        assert digest in source


def test_an_encoding_on_the_machine_counts(install: Callable[..., None]) -> None:
    messages: list[BaseMessage] = [HumanMessage("rome rome"), AIMessage("x" * 40)]
    assert TokenCounter.build(messages).counted_by == "approximation"

    install()
    counter = TokenCounter.build(messages)

    assert counter.counted_by == "encoding"
    # Two words and a space; forty letters; and four for each message.
    assert counter.count(messages) == 3 + 40 + 2 * 4
    assert counter.characters_per_token == pytest.approx(49 / 51)


def test_a_damaged_file_of_an_encoding_is_neither_used_nor_fetched(
    install: Callable[..., None],
) -> None:
    install(b"cut short")
    assert find_encoding() is None
    install()
    assert find_encoding() is not None


def test_special_tokens_and_lone_surrogates_are_text(install: Callable[..., None]) -> None:
    install()
    counter = TokenCounter.build([])
    assert counter.count([HumanMessage("<|endoftext|>")]) > 4
    assert counter.count([HumanMessage("\ud800")]) > 4


def test_a_picture_counts_as_much_as_by_approximation(install: Callable[..., None]) -> None:
    install()
    picture: Any = {"type": "image", "base64": "A" * 9000, "mime_type": "image/png"}
    message = HumanMessage([{"type": "text", "text": "rome"}, picture])
    assert 85 <= TokenCounter.build([]).count([message]) < 120


def report(read: int, approximated: int) -> AIMessage:
    """Return a reply whose model has reported what it read."""
    usage: Any = {"input_tokens": read, "output_tokens": 1, "total_tokens": read + 1}
    noted = {PROMPT_KEY: {APPROXIMATION_KEY: approximated}}
    return AIMessage("done", usage_metadata=usage, response_metadata=noted)


@pytest.mark.parametrize(
    ("read", "tools", "rate"),
    [(300, 0, 3), (300, 100, 2), (100, 0, 1), (99, 100, 0.5), (10**6, 0, 10)],
)
def test_the_rate_of_the_latest_report_holds_for_the_next_prompt(
    install: Callable[..., None], read: int, tools: int, rate: float
) -> None:
    install()
    task, later = HumanMessage("w" * 400), HumanMessage("w" * 400)
    messages = [report(5, 5), task, report(read, 100), later]

    counter = TokenCounter.build(messages, tools)

    assert counter.counted_by == "usage"
    tokens = count_tokens_approximately([task]) * rate
    assert counter.count([task]) == pytest.approx(tokens, abs=1)
    # Of what came later nothing is known: a token has three bytes at most.
    assert counter.count([later]) == pytest.approx(max(tokens, 400 // 3 + 4), abs=1)
    assert counter.count([task, later]) == counter.count([task]) + counter.count([later])
    assert counter.characters_per_token == min(4, 4 / rate)


def test_a_report_of_nothing_is_none() -> None:
    assert TokenCounter.build([report(0, 100)]).counted_by != "usage"
    assert TokenCounter.build([report(100, 0)]).counted_by != "usage"
    assert TokenCounter.build([AIMessage("x")]).counted_by != "usage"
