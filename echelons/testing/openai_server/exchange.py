"""Writing HTTP: one request, and the connection that its answer goes out on.

The connection makes one per request; the answers write through it.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

from echelons.testing.openai_server.chat_request import ChatRequest
from echelons.testing.openai_server.wire import Json

if TYPE_CHECKING:
    from echelons.testing.openai_server.answers import Hang
    from echelons.testing.openai_server.loopback_server import OpenAIServer


class Exchange:
    """One request and the means to answer it.

    Attributes:
        request: What was asked.
    """

    def __init__(
        self, request: ChatRequest, connection: BaseHTTPRequestHandler, server: OpenAIServer
    ) -> None:
        self.request = request
        self._connection = connection
        self._server = server

    def send(self, body: Json, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send a whole response."""
        send_json(self._connection, body, status, headers)

    def send_half(self, body: Json) -> None:
        """Send the head of a response and half of the body that it promises."""
        raw = json.dumps(body).encode()
        send_head(self._connection, 200, {"Content-Length": str(len(raw))})
        self._connection.wfile.write(raw[: len(raw) // 2])

    def open_stream(self) -> None:
        """Send the head of a response that comes in events."""
        headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        send_head(self._connection, 200, headers)

    def send_event(self, event: Json) -> None:
        """Send one event of the stream."""
        self._send_chunk(f"data: {json.dumps(event)}\n\n")

    def close_stream(self) -> None:
        """Send the mark that the stream is whole, and its end."""
        self._send_chunk("data: [DONE]\n\n")
        self._send_chunk("")

    def break_off(self) -> None:
        """Close the connection after what has been sent, whole or not."""
        self._connection.close_connection = True

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the server closes."""
        if seconds:
            self._server.closing.wait(seconds)

    def hold(self, hang: Hang) -> bool:
        """Wait for the release; False if the server closes instead."""
        return self._server.hold(hang)

    def _send_chunk(self, text: str) -> None:
        raw = text.encode()
        self._connection.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))


def send_head(
    connection: BaseHTTPRequestHandler, status: int, headers: dict[str, str] | None = None
) -> None:
    """Send a status and headers, and whether the connection closes after the response."""
    connected = "close" if connection.close_connection else "keep-alive"
    given = {"Content-Type": "application/json", "Connection": connected, **(headers or {})}
    connection.send_response(status)
    for name, value in given.items():
        connection.send_header(name, value)
    connection.end_headers()


def send_json(
    connection: BaseHTTPRequestHandler,
    body: Json,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> None:
    """Send a whole response."""
    raw = json.dumps(body).encode()
    send_head(connection, status, {"Content-Length": str(len(raw)), **(headers or {})})
    connection.wfile.write(raw)
