"""A small OpenAI-compatible server on loopback that answers by script.

For tests with the real client: streaming, retries, timeouts and broken connections use a
real socket. It needs only the standard library.
"""

from __future__ import annotations

from echelons.testing.openai_server.protocols import Blocks, ChatRequest
from echelons.testing.openai_server.server import (
    AnthropicServer,
    Drop,
    Hang,
    HttpError,
    OpenAIServer,
    Response,
    ResponseWriter,
)

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
