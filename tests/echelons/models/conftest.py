"""A clean environment for models, and models that ask a local server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from langchain_core.language_models import BaseChatModel

from echelons.models import resolve_model
from echelons.testing import OpenAIServer

VARIABLES = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "OPENAI_PROXY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
)

Served = tuple[BaseChatModel, OpenAIServer]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Served]]:
    """Play a script to the model that ``resolve`` makes from the environment alone."""
    with ExitStack() as stack:

        def start(*script: object, keep_alive: bool = False) -> Served:
            server = stack.enter_context(OpenAIServer(script, keep_alive=keep_alive))
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            return resolve_model("openai:test-model"), server

        yield start
