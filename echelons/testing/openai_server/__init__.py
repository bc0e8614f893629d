"""A small OpenAI-compatible server on loopback, played by script.

For tests with the real client: streaming, retries, timeouts and broken connections go over
a real socket. Only the standard library stands behind it.
"""

from __future__ import annotations

from echelons.testing.openai_server.chat_request import ChatRequest
from echelons.testing.openai_server.loopback_server import OpenAIServer
from echelons.testing.openai_server.responses import Drop, Hang, HttpError

__all__ = ["ChatRequest", "Drop", "Hang", "HttpError", "OpenAIServer"]
