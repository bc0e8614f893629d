"""The server: a listening socket, a thread per connection, and a script.

Tests use `OpenAIServer`; closing it ends every thread and socket that it opened.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from echelons.errors import InvalidScript, ScriptExhausted
from echelons.testing.openai_server import wire
from echelons.testing.openai_server.apis import ANTHROPIC, CHAT, RESPONSES, Api, Blocks
from echelons.testing.openai_server.responses import (
    Hang,
    ReplyResponse,
    Response,
    ResponseWriter,
    as_response,
)
from echelons.testing.openai_server.wire import ChatRequest, RefusedRequest, parse_body
from echelons.testing.provider_rules import Rules

LOOPBACK = "127.0.0.1"
MODELS_PATH = "/v1/models"
POLL_SECONDS = 0.02
"""How often the accepting thread checks whether to end; `close` waits that long at most."""

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
        rules: What it refuses, by path: tables that a test may change.
        refused: Why requests were refused.
        errors: Errors in the script, such as `ScriptExhausted`; the client gets status 400,
            which it does not retry.

    Raises:
        InvalidScript: A step is of an unknown kind.

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
            raise InvalidScript(f"the script {script!r}", "a list of steps or a function")
        self.models = tuple(models)
        self.keep_alive = keep_alive
        self.errors: list[Exception] = []
        self.refused: list[str] = []
        first = {CHAT.path: {"history": wire.check_history}}
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
        """Return the script's step for a request; the connection calls this.

        Raises:
            ScriptExhausted: There were more requests than steps.
            InvalidScript: The script's function returned no step.
        """
        if callable(self._script):
            response = as_response(self._script(request))
        elif request.number < len(self._script):
            response = self._script[request.number]
        else:
            raise ScriptExhausted(None, request.number, len(self._script))
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

    def do_GET(self) -> None:  # noqa: N802  the name that the standard library calls
        """List the models."""
        if self.path == MODELS_PATH:
            self.send_json(wire.build_model_list(self._owner.models))
        else:
            self._refuse(404, f"no such path: {self.path}")

    def do_POST(self) -> None:  # noqa: N802
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
        except RefusedRequest as refusal:
            self._owner.refused.append(str(refusal))
            self._refuse(400, str(refusal))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = self._owner.record_request(headers, body, api)
        try:
            response = self._owner.next_response(request)
        except Exception as error:  # noqa: BLE001  (a script's function may raise anything)
            self._owner.errors.append(error)
            self._refuse(400, f"{type(error).__name__}: {error}")
            return
        response.respond(request, self)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a test's output belongs to the test."""

    def _refuse(self, status: int, message: str) -> None:
        error = wire.build_error(message, "invalid_request_error")
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
