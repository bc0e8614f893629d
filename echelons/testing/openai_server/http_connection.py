"""One connection: reads a request and finds its answer in the script.

The server makes one per connection, each in a thread of its own.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, cast

from echelons.testing.openai_server import wire
from echelons.testing.openai_server.chat_request import RefusedRequest, parse_body
from echelons.testing.openai_server.exchange import Exchange, send_json

if TYPE_CHECKING:
    from echelons.testing.openai_server.chat_request import ChatRequest
    from echelons.testing.openai_server.loopback_server import OpenAIServer

CHAT_PATH = "/v1/chat/completions"
MODELS_PATH = "/v1/models"


class Connection(BaseHTTPRequestHandler):
    """The server's side of one connection."""

    protocol_version = "HTTP/1.1"  # for chunks: without them a broken stream looks complete

    def parse_request(self) -> bool:
        """Read the head of a request, and whether the connection stays open after it."""
        accepted = super().parse_request()
        self.close_connection = self.close_connection or not self._owner.keep_alive
        return accepted

    def do_GET(self) -> None:
        """List the models."""
        if self.path == MODELS_PATH:
            send_json(self, wire.model_list(self._owner.models))
        else:
            self._refuse(404, f"no such path: {self.path}")

    def do_POST(self) -> None:
        """Answer a request for a completion by the script."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._refuse(411, "the length of the body is missing")
            return
        raw = self.rfile.read(int(length))
        if self.path != CHAT_PATH:
            self._refuse(404, f"no such path: {self.path}")
            return
        try:
            body = parse_body(raw)
        except RefusedRequest as refusal:
            self._refuse(400, str(refusal))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._play(self._owner.admit(headers, body))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a test's output belongs to the test."""

    @property
    def _owner(self) -> OpenAIServer:
        return cast("OpenAIServer", cast(Any, self.server).owner)

    def _play(self, request: ChatRequest) -> None:
        try:
            response = self._owner.next(request)
        except Exception as error:  # noqa: BLE001  (a script's function may raise anything)
            self._owner.errors.append(error)
            self._refuse(400, f"{type(error).__name__}: {error}")
            return
        response.respond(Exchange(request, self, self._owner))

    def _refuse(self, status: int, message: str) -> None:
        send_json(self, wire.error(message, "invalid_request_error"), status)
