"""The server: a listening socket, a thread per connection, and a script of replies and failures."""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Protocol, runtime_checkable

from echelons.errors import get_error_name, invalid_script, script_exhausted
from echelons.testing.openai_server.protocols import (
    ANTHROPIC,
    CHAT,
    RESPONSES,
    Api,
    Blocks,
    ChatRequest,
    Json,
    build_error,
    build_model_list,
    check_history,
    parse_body,
)
from echelons.testing.provider_rules import Rules
from echelons.testing.steps import Reply, as_reply

LOOPBACK = "127.0.0.1"
MODELS_PATH = "/v1/models"
POLL_SECONDS = 0.02
"""How often the accepting thread checks whether to end; `close` waits that long at most."""


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
        self, body: Json, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Send a whole response."""
        raw = json.dumps(body).encode()
        self.send_head(status, {"Content-Length": str(len(raw)), **(headers or {})})
        self.wfile.write(raw)

    def send_half(self, body: Json) -> None:
        """Send the head of a response and half of the body that the head announces."""
        raw = json.dumps(body).encode()
        self.send_head(200, {"Content-Length": str(len(raw))})
        self.wfile.write(raw[: len(raw) // 2])

    def open_stream(self) -> None:
        """Send the head of a response that is a stream of events."""
        headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        self.send_head(200, headers)

    def send_events(self, events: Iterable[Json]) -> None:
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
        writer.send_json(build_error(self.message, kind), self.status, headers)


@dataclass(frozen=True, eq=False)
class Hang:
    """A response that does not come, or stops in its middle, until it is released.

    Attributes:
        step: The reply that is sent after the release: a text, `Reply` or calls.
        after: How many events of a stream are sent first; with 0 not even a header is.
        reached: Set as soon as a request hangs here.
        released: Set by `release`.

    Raises:
        ScriptError: The step is none of these.
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
        ScriptError: The step is none of these.
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
    """Return the response for a step of the server's script."""
    if isinstance(step, Response):
        return step
    if isinstance(step, Blocks):
        return ReplyResponse(step)
    kinds = "a str, Reply, Call, list of Calls, HttpError, Hang or Drop"
    return ReplyResponse(_require_reply(step, kinds))


def _require_reply(step: object, kinds: str = "a str, Reply, Call or list of Calls") -> Reply:
    reply = as_reply(step)
    if reply is None:
        raise invalid_script(f"the step {step!r}", kinds)
    return reply


ServerScript = Sequence[object] | Callable[[ChatRequest], object]


class OpenAIServer:
    """An OpenAI-compatible server on a free port of loopback, while its block runs.

    It answers `POST /v1/chat/completions` and `/v1/responses`, streamed or not, and
    `GET /v1/models`, and refuses what a provider would refuse, by the rules of
    `echelons.testing.provider_rules`.

    Args:
        script: The steps, one per request in the order of arrival: a text, `Reply`,
            `Call` or calls, `HttpError`, `Hang` or `Drop`. Or a function from the request
            to a step, for concurrent requests.
        models: The names of the models that it lists.
        keep_alive: Whether connections stay open between requests, as a provider's do.
            Otherwise each response closes its connection, and no client keeps an idle socket.
        strict: Whether it refuses all that the provider would; otherwise only conversations
            with tool calls that are not answered.

    Attributes:
        rules: The rules for requests, by path: tables that a test may change.
        refused: Why requests were refused.
        errors: Errors in the script, such as `script_exhausted`; the client gets status 400,
            which it does not retry.

    Raises:
        ScriptError: A step is of an unknown kind.

    Examples:
        >>> with OpenAIServer(["Hello."]) as server:
        ...     server.url.startswith("http://127.0.0.1:")
        True
    """

    apis: Sequence[Api] = (CHAT, RESPONSES)
    base_path = "/v1"

    def __init__(
        self,
        script: ServerScript,
        models: Sequence[str] = ("test-model",),
        *,
        keep_alive: bool = False,
        strict: bool = True,
    ) -> None:
        if isinstance(script, str) or not (callable(script) or isinstance(script, Sequence)):
            raise invalid_script(f"the script {script!r}", "a list of steps or a function")
        self.models = tuple(models)
        self.keep_alive = keep_alive
        self.errors: list[Exception] = []
        self.refused: list[str] = []
        first = {CHAT.path: {"history": check_history}}
        self.rules: dict[str, dict[str, Any]] = {
            api.path: {**first.get(api.path, {}), **(api.rules if strict else {})}
            for api in self.apis
        }
        self.closing = threading.Event()
        self._script = script if callable(script) else [as_response(step) for step in script]
        self._requests: list[ChatRequest] = []
        self._paused: list[Any] = []
        self._hanging: set[Hang] = set()
        self._lock = threading.Lock()
        self._listener: _Listener | None = None

    def __enter__(self) -> OpenAIServer:
        self._listener = _Listener(self)
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL, for `OPENAI_BASE_URL`.

        Raises:
            RuntimeError: The server has not been started.
        """
        if self._listener is None:
            raise RuntimeError(
                f"an {type(self).__name__} has an address only inside its with block"
            )
        return f"http://{LOOPBACK}:{self._listener.server_address[1]}{self.base_path}"

    @property
    def requests(self) -> list[ChatRequest]:
        """All requests for completions so far, in the order of arrival."""
        with self._lock:
            return list(self._requests)

    @property
    def connections(self) -> int:
        """The number of connections that clients have opened so far."""
        return 0 if self._listener is None else self._listener.accepted

    def close(self) -> None:
        """End everything: hanging requests, open connections, threads, the socket."""
        with self._lock:
            self.closing.set()
            hanging = list(self._hanging)
        for hang in hanging:
            hang.release()
        if self._listener is not None:
            self._listener.stop()

    def record_request(
        self, headers: Mapping[str, str], body: Mapping[str, Any], api: Api = CHAT
    ) -> ChatRequest:
        """Record a request; the connection calls this."""
        with self._lock:
            number = len(self._requests)
            request = ChatRequest(number, dict(headers), body, api.messages_key)
            self._requests.append(request)
        return request

    def next_response(self, request: ChatRequest) -> Response:
        """Return the script's step for a request; the connection calls this."""
        if callable(self._script):
            response = as_response(self._script(request))
        elif request.number < len(self._script):
            response = self._script[request.number]
        else:
            raise script_exhausted(None, request.number, len(self._script))
        if isinstance(response, Hang):
            with self._lock:  # `close` releases it, unless it sees that the server has closed
                self._hanging.add(response)
        return response

    def find_rules(self, api: Api, raw: bytes) -> Rules:
        """Return what a request must not break; the connection calls this."""
        return self.rules[api.path]


class AnthropicServer(OpenAIServer):
    """A server that speaks Anthropic's Messages API, for the client of `langchain-anthropic`.

    It answers `POST /v1/messages`, streamed or not, and is strict by `ANTHROPIC_RULES`. A step
    may also be `Blocks`, for thinking, tools of the server or a pause; a reply that paused may be
    the end of the next request.

    Examples:
        >>> with AnthropicServer(["Hello."]) as server:
        ...     server.url.startswith("http://127.0.0.1:")
        True
    """

    apis = (ANTHROPIC,)
    base_path = ""

    def next_response(self, request: ChatRequest) -> Response:
        """Return the script's step for a request, and note that it paused."""
        response = super().next_response(request)
        reply = response.reply if isinstance(response, ReplyResponse) else None
        if isinstance(reply, Blocks) and reply.stop_reason == "pause_turn":
            self._paused.append([dict(block) for block in reply.content])
        return response

    def find_rules(self, api: Api, raw: bytes) -> Rules:
        """Return the rules; a request may end with a reply that paused."""
        rules = super().find_rules(api, raw)
        with suppress(ValueError, LookupError, TypeError):
            if json.loads(raw)["messages"][-1]["content"] in self._paused:
                return {name: rule for name, rule in rules.items() if name != "last"}
        return rules


class _Connection(ResponseWriter):
    """The server's side of one connection, in a thread of its own."""

    def __init__(self, owner: OpenAIServer, *args: Any) -> None:
        self._owner = owner
        self.closing = owner.closing
        super().__init__(*args)  # serves the whole connection

    def parse_request(self) -> bool:
        """Read the head of a request, and whether the connection stays open after it."""
        accepted = super().parse_request()
        self.close_connection = self.close_connection or not self._owner.keep_alive
        return accepted

    def do_GET(self) -> None:
        """List the models."""
        if self.path == MODELS_PATH:
            self.send_json(build_model_list(self._owner.models))
        else:
            self._refuse(404, f"no such path: {self.path}")

    def do_POST(self) -> None:
        """Answer a request for a completion by the script."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._refuse(411, "the length of the body is missing")
            return
        raw = self.rfile.read(int(length))
        paths = {api.path: api for api in self._owner.apis}
        api = paths.get(self.path.partition("?")[0])
        if api is None:
            self._refuse(404, f"no such path: {self.path}")
            return
        self.api = api
        try:
            body = parse_body(raw, self._owner.find_rules(api, raw))
        except ValueError as refusal:
            self._owner.refused.append(str(refusal))
            self._refuse(400, str(refusal))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = self._owner.record_request(headers, body, api)
        try:
            response = self._owner.next_response(request)
        except Exception as error:  # noqa: BLE001  (a script's function may raise anything)
            self._owner.errors.append(error)
            self._refuse(400, f"{get_error_name(error)}: {error}")
            return
        response.respond(request, self)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a test's output belongs to the test."""

    def _refuse(self, status: int, message: str) -> None:
        error = build_error(message, "invalid_request_error")
        self.send_json({"type": "error", **error}, status)


class _Listener(ThreadingMixIn, TCPServer):
    """Accepts connections, tracks the open ones, and joins their threads at the end."""

    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 128  # many agents may connect at once

    def __init__(self, owner: OpenAIServer) -> None:
        self.owner = owner
        self.accepted = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((LOOPBACK, 0), partial(_Connection, owner))
        self._thread = threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,))
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting, end the open connections, and wait for all threads."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        with self._lock:
            for connection in self._open:  # wake each thread that reads from it or writes to it
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self.accepted += 1
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        # A client that disconnects is not an error here; the base class would print it.
        if isinstance(error, Exception) and not isinstance(error, ConnectionError):
            self.owner.errors.append(error)
