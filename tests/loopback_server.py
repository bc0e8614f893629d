"""A real HTTP server on the loopback, whose answers a test gives path by path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any


@dataclass
class Reply:
    """What the server answers: a status, headers, and a body, or its pieces one by one."""

    body: bytes | Callable[[], Iterator[bytes]] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/plain"})


@dataclass
class LoopbackServer:
    """A running server; `seen` has the path and headers of each request."""

    port: int
    released: Event
    replies: dict[str, Reply | Callable[[str], Reply]] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}"

    def hang(self) -> Iterator[bytes]:
        """Send nothing until the test has ended."""
        self.released.wait(30)
        yield b""

    def drip(self) -> Iterator[bytes]:
        """Send a byte now and then until the test has ended."""
        while not self.released.wait(0.02):
            yield b"."


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep silent: clients of these tests hang up early."""


@contextmanager
def serve_on_loopback() -> Iterator[LoopbackServer]:
    """Run a server in a thread; paths that it does not know are answered with 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            server.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            reply = server.replies.get(path, Reply(b"not found", 404))
            reply = reply(self.path) if callable(reply) else reply
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if isinstance(reply.body, bytes) and "content-length" not in reply.headers:
                self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            for piece in [reply.body] if isinstance(reply.body, bytes) else reply.body():
                self.wfile.write(piece)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep silent."""

    http = QuietServer(("127.0.0.1", 0), Handler)
    server = LoopbackServer(http.server_address[1], Event())
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        http.shutdown()
        http.server_close()
        thread.join()
