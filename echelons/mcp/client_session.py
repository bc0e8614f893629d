"""The SDK's client session, which also tells a server of cancelled calls, and ends broken ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import anyio
import httpx
from mcp import ClientSession, types

CANCEL_TIMEOUT = 2.0
"""Seconds in which a server must take the news that a call is cancelled."""


class CancellingSession(ClientSession):
    """A client session that tells the server of each request that is cancelled."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._open_requests: dict[Any, anyio.CancelScope] = {}

    def give_up(self, request_id: Any) -> None:
        """End the wait for an answer that cannot come any more."""
        if scope := self._open_requests.get(request_id):
            scope.cancel()

    async def send_request(self, request: Any, *given: Any, **more: Any) -> Any:
        """Send a request, and a notification if it is cancelled, which the SDK leaves out."""
        # The SDK tells no one the number of a request: it takes this one, before it first waits.
        request_id = self._request_id
        with anyio.CancelScope() as scope:
            self._open_requests[request_id] = scope
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
        raise ConnectionError("the connection broke off before the result of the call")

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
