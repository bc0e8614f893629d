"""The SDK's client session, which also reports cancelled calls, and ends broken ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from mcp import ClientSession, types
from mcp.shared.message import SessionMessage

CANCEL_TIMEOUT = 2.0
"""Seconds in which a server must take the news that a call is cancelled."""


@dataclass(slots=True)
class _OpenRequest:
    scope: anyio.CancelScope
    is_call: bool
    fault: Exception | None = None


class CancellingSession(ClientSession):
    """A client session that notifies the server of each request that is cancelled.

    Its calls end as soon as the server breaks the protocol; the SDK would wait on for an answer.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._open_requests: dict[Any, _OpenRequest] = {}

    def give_up(self, request_id: Any) -> None:
        """End the wait for an answer that cannot come any more."""
        if request := self._open_requests.get(request_id):
            request.scope.cancel()

    def end_calls(self, fault: Exception) -> None:
        """End the calls in progress, for a message that belongs to none and may be the answer."""
        for request in self._open_requests.values():
            # What a program prints while it starts is no reason to give it up.
            if request.is_call:
                request.fault = fault
                request.scope.cancel()

    async def send_request(self, request: Any, *given: Any, **more: Any) -> Any:
        """Send a request, and a notification if it is cancelled, which the SDK leaves out."""
        # The SDK does not expose the number of a request: it takes this one, before it first waits.
        request_id = self._request_id
        scope = anyio.CancelScope()
        opened = _OpenRequest(scope, isinstance(request.root, types.CallToolRequest))
        with scope:
            self._open_requests[request_id] = opened
            try:
                return await super().send_request(request, *given, **more)
            except asyncio.CancelledError:
                # The protocol forbids to cancel the first request.
                if not scope.cancel_called and not isinstance(
                    request.root, types.InitializeRequest
                ):
                    await self._notify_cancelled(request_id)
                raise
            finally:
                del self._open_requests[request_id]
        raise opened.fault or ConnectionError(
            "the connection broke off before the result of the call"
        )

    async def _handle_incoming(self, req: Any) -> None:
        """Take what is no answer, such as the exception of a message that could not be read."""
        if isinstance(req, Exception):
            self.end_calls(req)
        await super()._handle_incoming(req)

    async def _handle_response(self, message: SessionMessage) -> None:
        """Take an answer."""
        answer: Any = message.message.root
        request_id = self._normalize_request_id(answer.id)
        if request_id in self._response_streams:
            await super()._handle_response(message)
        # The answer to a request that was cancelled may come late.
        elif not (isinstance(request_id, int) and 0 <= request_id < self._request_id):
            self.end_calls(RuntimeError(f"an answer to a request {answer.id!r}, and none is open"))

    async def _notify_cancelled(self, request_id: int) -> None:
        params = types.CancelledNotificationParams(requestId=request_id, reason="cancelled")
        notification = types.CancelledNotification(params=params)
        with anyio.move_on_after(CANCEL_TIMEOUT, shield=True), suppress(Exception):
            await self.send_notification(types.ClientNotification(notification))


class WatchedStream(httpx.AsyncByteStream):
    """The events of a response; calls back when they end before they are closed.

    The SDK closes the stream after the result. Before it, it waits on for a result that cannot
    come, unless the server has given its events ids, by which it gets the rest.
    """

    def __init__(self, stream: httpx.AsyncByteStream, on_break: Callable[[], Any]) -> None:
        self._stream = stream
        self._on_break = on_break

    async def __aiter__(self) -> AsyncIterator[bytes]:
        has_ids, end = False, b"\n"
        try:
            async for chunk in self._stream:
                has_ids = has_ids or re.search(rb"[\r\n]id:", end + chunk) is not None
                end = chunk[-4:]
                yield chunk
        except httpx.TransportError:
            if not has_ids:
                self._on_break()
            raise
        if not has_ids:
            self._on_break()

    async def aclose(self) -> None:
        """Close the response."""
        await self._stream.aclose()
