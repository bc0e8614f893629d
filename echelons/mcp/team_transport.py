"""How a `TeamServer` is reached: over stdio, or over HTTP on this machine with a token."""

from __future__ import annotations

import hmac
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from io import TextIOWrapper

import anyio
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from echelons.mcp.team_server import TeamServer

HOST = "127.0.0.1"
"""The only address that is listened at."""
MCP_PATH = "/mcp"
"""The path of the endpoint."""
SHUTDOWN_TIMEOUT = 5
"""Seconds in which connections end after Ctrl-C; runs in progress are stopped."""


async def serve_stdio(server: TeamServer) -> None:
    """Serve one client on the standard input and output, until it closes them."""
    with _claim_stdout() as stdout:
        async with stdio_server(stdout=anyio.wrap_file(stdout)) as (read, write):
            sdk_server = server.sdk_server
            await sdk_server.run(read, write, sdk_server.create_initialization_options())


async def serve_http(server: TeamServer, listening: socket.socket, token: str) -> None:
    """Serve clients that have the token, on a socket that listens, until Ctrl-C."""
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        build_http_app(server, port, token),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
    )
    await uvicorn.Server(config).serve(sockets=[listening])


def build_http_app(server: TeamServer, port: int, token: str) -> ASGIApp:
    """Return the ASGI application of a server.

    A request without the token has status 401; one whose `Origin` is another, as a page in a
    browser sends it, 403; one whose `Host` is another, as after DNS rebinding, 421.
    """
    hosts = [f"{name}:{port}" for name in (HOST, "localhost")]
    manager = StreamableHTTPSessionManager(
        server.sdk_server,
        security_settings=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=hosts,
            allowed_origins=[f"http://{host}" for host in hosts],
        ),
    )

    @asynccontextmanager
    async def run_manager(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    endpoint = _TokenCheck(manager.handle_request, token)
    return Starlette(routes=[Route(MCP_PATH, endpoint)], lifespan=run_manager)


class _TokenCheck:
    """Lets only requests with the bearer token through."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(token, self._wanted):
            await self._app(scope, receive, send)
            return
        refusal = PlainTextResponse(
            "a bearer token is needed", 401, headers={"WWW-Authenticate": "Bearer"}
        )
        await refusal(scope, receive, send)


@contextmanager
def _claim_stdout() -> Iterator[TextIOWrapper]:
    """Yield the standard output; what else is written there goes to the standard error.

    A tool of a team that prints would otherwise break the protocol.
    """
    sys.stdout.flush()
    descriptor = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stdout:
            yield stdout
    finally:
        os.dup2(2, 1)
