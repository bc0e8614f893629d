"""Steps of the server's script, and the connection that they write to.

A script holds plain replies, `HttpError`, `Hang` and `Drop`; the server calls `respond`.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Protocol, runtime_checkable

from echelons.errors import InvalidScript
from echelons.testing.openai_server import wire
from echelons.testing.openai_server.apis import CHAT, Api, Blocks
from echelons.testing.openai_server.wire import ChatRequest
from echelons.testing.steps import Reply, as_reply


class ResponseWriter(BaseHTTPRequestHandler):
    """The writing half of one HTTP connection.

    Attributes:
        closing: Set when the server closes; a response must then wait no longer.
        api: The protocol of the request.
    """

    protocol_version = "HTTP/1.1"  # for chunks: without them a broken stream looks complete
    closing: threading.Event
    api: Api = CHAT

    def send_head(self, status: int, headers: dict[str, str]) -> None:
        """Send a status and headers, and whether the connection closes after the response."""
        connected = "close" if self.close_connection else "keep-alive"
        defaults = {"Content-Type": "application/json", "Connection": connected}
        self.send_response(status)
        for name, value in {**defaults, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_json(
        self, body: wire.Json, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Send a whole response."""
        raw = json.dumps(body).encode()
        self.send_head(status, {"Content-Length": str(len(raw)), **(headers or {})})
        self.wfile.write(raw)

    def send_half(self, body: wire.Json) -> None:
        """Send the head of a response and half of the body that the head announces."""
        raw = json.dumps(body).encode()
        self.send_head(200, {"Content-Length": str(len(raw))})
        self.wfile.write(raw[: len(raw) // 2])

    def open_stream(self) -> None:
        """Send the head of a response that is a stream of events."""
        headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        self.send_head(200, headers)

    def send_events(self, events: Iterable[wire.Json]) -> None:
        """Send events of the stream."""
        for event in events:
            name = f"event: {event['type']}\n" if self.api.names_events else ""
            self._send_chunk(f"{name}data: {json.dumps(event)}\n\n")

    def close_stream(self) -> None:
        """Send the mark of a complete stream, and its end."""
        if not self.api.names_events:
            self._send_chunk("data: [DONE]\n\n")
        self._send_chunk("")

    def _send_chunk(self, text: str) -> None:
        raw = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))


@runtime_checkable
class Response(Protocol):
    """A step of the server's script; one of a test's own may write anything."""

    def respond(self, request: ChatRequest, writer: ResponseWriter) -> None:
        """Write the response to a request, or as much of it as the step sends."""


@dataclass(frozen=True)
class ReplyResponse:
    """The reply as OpenAI would send it, whole or streamed as the client asked."""

    reply: Reply | Blocks

    def respond(self, request: ChatRequest, writer: ResponseWriter) -> None:
        """Send it after its latency."""
        if self.reply.latency:
            writer.closing.wait(self.reply.latency)
        if not request.streams:
            writer.send_json(writer.api.build_whole(request, self.reply))
            return
        writer.open_stream()
        writer.send_events(writer.api.build_events(request, self.reply))
        writer.close_stream()


@dataclass(frozen=True)
class HttpError:
    """A refusal with a status, such as 429 or 500. For several in a row: `[step] * n`.

    Attributes:
        status: The HTTP status.
        retry_after: Seconds after which the client may retry, or None to leave it out.
        message: The text of the error.
    """

    status: int
    retry_after: float | None = None
    message: str = "scripted failure"

    def respond(self, request: ChatRequest, writer: ResponseWriter) -> None:
        """Send the error, its delay in whole seconds and, as OpenAI does, in milliseconds."""
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(math.ceil(self.retry_after))
            headers["Retry-After-Ms"] = str(math.ceil(self.retry_after * 1000))
        kind = "rate_limit_error" if self.status == 429 else "server_error"
        writer.send_json(wire.build_error(self.message, kind), self.status, headers)


@dataclass(frozen=True, eq=False)
class Hang:
    """A response that does not come, or stops in its middle, until it is released.

    Attributes:
        step: The reply that is sent after the release: a text, `Reply` or calls.
        after: How many events of a stream are sent first; with 0 not even a header is.
        reached: Set as soon as a request hangs here.
        released: Set by `release`.

    Raises:
        InvalidScript: The step is none of these.
    """

    step: object = ""
    after: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        _require_reply(self.step)

    def release(self) -> None:
        """Let every request go on that hangs here, now or later."""
        self.released.set()

    def respond(self, request: ChatRequest, writer: ResponseWriter) -> None:
        """Send the first events, wait, and send the rest."""
        reply = _require_reply(self.step)
        if not (request.streams and self.after):
            if self._wait(writer.closing):
                ReplyResponse(reply).respond(request, writer)
            return
        stream = writer.api.build_events(request, reply)
        writer.open_stream()
        writer.send_events(stream[: self.after])
        if self._wait(writer.closing):
            writer.send_events(stream[self.after :])
            writer.close_stream()

    def _wait(self, closing: threading.Event) -> bool:
        """Wait for the release; False if the server closes instead, which releases it too."""
        if closing.is_set():
            return False
        self.reached.set()
        self.released.wait()
        return not closing.is_set()


@dataclass(frozen=True)
class Drop:
    """A response whose connection breaks off.

    Attributes:
        step: The reply that is begun: a text, `Reply` or calls.
        after: How many events of a stream are sent first. A response that is not streamed
            stops in its middle; with 0 either breaks off before its first byte.

    Raises:
        InvalidScript: The step is none of these.
    """

    step: object = "cut short"
    after: int = 2

    def __post_init__(self) -> None:
        _require_reply(self.step)

    def respond(self, request: ChatRequest, writer: ResponseWriter) -> None:
        """Send the beginning and no more."""
        reply = _require_reply(self.step)
        writer.close_connection = True
        if self.after and request.streams:
            writer.open_stream()
            writer.send_events(writer.api.build_events(request, reply)[: self.after])
        elif self.after:
            writer.send_half(writer.api.build_whole(request, reply))


def as_response(step: object) -> Response:
    """Return the response that a step of the server's script stands for.

    Raises:
        InvalidScript: It is no step.
    """
    if isinstance(step, Response):
        return step
    if isinstance(step, Blocks):
        return ReplyResponse(step)
    known = "a str, Reply, Call, list of Calls, HttpError, Hang or Drop"
    return ReplyResponse(_require_reply(step, known))


def _require_reply(step: object, known: str = "a str, Reply, Call or list of Calls") -> Reply:
    reply = as_reply(step)
    if reply is None:
        raise InvalidScript(f"the step {step!r}", known)
    return reply
