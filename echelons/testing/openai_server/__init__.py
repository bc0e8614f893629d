"""A small OpenAI-compatible server on loopback that answers by script.

For tests with the real client: streaming, retries, timeouts and broken connections use a
real socket. It needs only the standard library.
"""

from __future__ import annotations

from echelons.testing.openai_server.apis import Blocks
from echelons.testing.openai_server.loopback_server import AnthropicServer, OpenAIServer
from echelons.testing.openai_server.responses import (
    Drop,
    Hang,
    HttpError,
    Response,
    ResponseWriter,
)
from echelons.testing.openai_server.wire import ChatRequest

__all__ = [
    "AnthropicServer",
    "Blocks",
    "ChatRequest",
    "Drop",
    "Hang",
    "HttpError",
    "OpenAIServer",
    "Response",
    "ResponseWriter",
]
