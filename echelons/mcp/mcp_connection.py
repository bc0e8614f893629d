"""`McpConnection`: a session with an MCP server in one event loop, which serves all others."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, TextIO, TypeVar, cast

import anyio
import httpx
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.context import RequestContext
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from echelons.delegation.effects import IDEMPOTENCY_KEY
from echelons.errors import CallCutShort, McpServerFailed
from echelons.mcp.call_meta import CALL_META
from echelons.mcp.elicitation import (
    LONGEST_MESSAGE,
    build_form_schema,
    clean_form,
    find_form_fault,
    read_form_answer,
)
from echelons.mcp.mcp_servers import HttpServer, McpServer, StdioServer
from echelons.text.error_lines import describe_error, join_printable, redact_secrets

CANCEL_TIMEOUT = 2.0
"""Seconds in which a server must take the news that a call is cancelled."""
LOG = logging.getLogger(__name__)
CLOSE_TIMEOUT = 10.0
"""Seconds in which a connection must end."""
REMEMBERED_QUESTIONS = 1000
"""How many open questions of servers are remembered, to compare them with those asked again."""
LONGEST_LINE = 4096
"""Bytes of a line of a server's standard error; a longer one is several."""
LONGEST_QUOTE = 200
"""Characters of a server's words that an error shows."""
_GONE = "it has ended or closed the connection"
T = TypeVar("T")
SESSION_LOST = "Session terminated"
"""What the SDK says of a request that the server refused, as it does not know its session."""


@dataclass(slots=True)
class _OpenRequest:
    scope: anyio.CancelScope
    is_call: bool
    fault: Exception | None = None


class CancellingSession(ClientSession):
    """A client session that notifies the server of each request that is cancelled.

    Its calls end as soon as the server breaks the protocol; the SDK would wait on for an answer.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
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

    async def send_request(self, request: Any, *arguments: Any, **more: Any) -> Any:
        """Send a request, and a notification if it is cancelled, which the SDK leaves out."""
        # The SDK does not expose the number of a request: it takes this one, before it first waits.
        request_id = self._request_id
        scope = anyio.CancelScope()
        opened = _OpenRequest(scope, isinstance(request.root, types.CallToolRequest))
        with scope:
            self._open_requests[request_id] = opened
            try:
                return await super().send_request(request, *arguments, **more)
            except asyncio.CancelledError:
                # The protocol forbids to cancel the first request.
                if not scope.cancel_called and not isinstance(
                    request.root, types.InitializeRequest
                ):
                    params = types.CancelledNotificationParams(
                        requestId=request_id, reason="cancelled"
                    )
                    notification = types.CancelledNotification(params=params)
                    with anyio.move_on_after(CANCEL_TIMEOUT, shield=True), suppress(Exception):
                        await self.send_notification(types.ClientNotification(notification))
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


@dataclass(frozen=True, eq=False)
class Elicitation:
    """A server's question to the human, on its way to the run that has made the call."""

    message: str
    form: Mapping[str, Any]
    answer: Future[types.ElicitResult] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class _OpenCall:
    """A call in progress, as the connection's event loop sees it."""

    loop: asyncio.AbstractEventLoop
    questions: asyncio.Queue[Elicitation]
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class McpConnection:
    """A connection to one MCP server.

    `open` and `close` run in the event loop of the connection, `call` in any other.
    """

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.name = server.label
        self._calls: set[_OpenCall] = set()
        self._performing: set[asyncio.Task[Any]] = set()
        self._session: CancellingSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        # Ends the session that is served now.
        self._stop = asyncio.Event()
        self._reconnecting = asyncio.Lock()
        self._turn = nullcontext() if server.parallel else asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._stderr = StderrTail()
        # By the call and its number: what a suspended call has asked.
        self._asked: OrderedDict[tuple[str, int], str] = OrderedDict()

    async def open(self, prepare: Callable[[ClientSession], Awaitable[Any]]) -> Any:
        """Connect, and return what `prepare` makes of the session.

        Raises:
            McpServerFailed: The server does not start or answer, or `prepare` fails.
        """
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.server.timeout):
                return await self._start(prepare)
        except TimeoutError:
            await self.close()
            raise self._build_failure(f"no answer in {self.server.timeout:g} s") from None
        except McpServerFailed:
            await self.close()
            raise
        except Exception as error:
            await self.close()
            raise self._build_failure(self._describe(error)) from error

    async def close(self) -> None:
        """End the connection, and the process of the server if it was started for it."""
        for task in self._performing:
            task.cancel()
        if self._performing:
            # The server is still notified of the calls that were cancelled last.
            await asyncio.wait(self._performing, timeout=CLOSE_TIMEOUT)
        self._is_closed = True
        await self._end_session()

    async def call_tool(self, *args: Any, **kwargs: Any) -> types.CallToolResult:
        """Call a tool in the session that is open now: after a restart, another than before."""
        assert self._session is not None  # noqa: S101  `open` has made it
        return await self._session.call_tool(*args, **{"meta": CALL_META.get(), **kwargs})

    async def call(
        self, perform: Callable[[], Awaitable[types.CallToolResult]]
    ) -> types.CallToolResult:
        """Return the result of a call, made in the loop of the connection; a failure is a result.

        The server's questions are asked of the human in the caller's run. If the caller is
        cancelled, so is the call at the server.

        Raises:
            CallCutShort: It has not ended in time, and may have happened.
            GraphInterrupt: The server has a question, which waits in the inbox. When it is
                answered, the call is made again from its beginning.
        """
        if self._loop is None or self._loop.is_closed() or self._is_closed:
            return self._build_error("the connection is closed")
        open_call = _OpenCall(asyncio.get_running_loop(), asyncio.Queue())
        performing = self._perform(open_call, perform)
        try:
            work = asyncio.run_coroutine_threadsafe(performing, self._loop)
        except RuntimeError:  # the loop has been closed this moment
            performing.close()
            return self._build_error("the connection is closed")
        done: asyncio.Future[Any] = asyncio.wrap_future(work)
        next_question: asyncio.Future[Any] = asyncio.ensure_future(open_call.questions.get())
        count = 0
        try:
            while True:
                await asyncio.wait({done, next_question}, return_when=asyncio.FIRST_COMPLETED)
                if done.done():
                    if done.cancelled():  # by `close`
                        return self._build_error("the connection was closed")
                    result: types.CallToolResult = done.result()
                    return result
                elicitation: Elicitation = next_question.result()
                next_question = asyncio.ensure_future(open_call.questions.get())
                answer = self._ask_human(elicitation, count)
                with suppress(InvalidStateError):  # the call has ended meanwhile
                    elicitation.answer.set_result(answer)
                count += 1
        finally:
            next_question.cancel()
            done.cancel()

    async def _start(self, prepare: Callable[[ClientSession], Awaitable[Any]] | None = None) -> Any:
        """Open a session, and return what `prepare` makes of it."""
        started: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._stop, self._failure = asyncio.Event(), None
        self._serving = asyncio.create_task(self._serve(started, self._stop))

        async def prepare_session() -> Any:
            session = await started
            await session.initialize()
            return await prepare(session) if prepare else None

        return await self._wait_with_server(prepare_session())

    async def _end_session(self) -> None:
        """Close the session that is served now."""
        self._stop.set()
        if self._serving:
            _, late = await asyncio.wait({self._serving}, timeout=CLOSE_TIMEOUT)
            for task in late:
                task.cancel()

    async def _serve(self, started: asyncio.Future[ClientSession], stop: asyncio.Event) -> None:
        """Hold the session open; the SDK wants it closed by the task that has opened it."""
        try:
            async with AsyncExitStack() as stack:
                if isinstance(self.server, StdioServer):
                    parameters = StdioServerParameters(
                        command=self.server.command,
                        args=list(self.server.args),
                        env=dict(self.server.env),
                        cwd=self.server.cwd,
                    )
                    with self._stderr.open() as errlog:
                        read, write = await stack.enter_async_context(
                            stdio_client(parameters, errlog)
                        )
                else:
                    read, write = await self._connect(stack, self.server)
                session = CancellingSession(
                    read, write, elicitation_callback=self._handle_elicitation
                )
                self._session = await stack.enter_async_context(session)
                started.set_result(session)
                await stop.wait()
        except Exception as error:  # noqa: BLE001  the calls raise what ends the transport
            self._failure = error
            if not started.done():
                started.set_exception(error)
                started.exception()  # or asyncio would complain that it was never seen
        finally:
            started.cancel()

    async def _connect(self, stack: AsyncExitStack, server: HttpServer) -> Any:
        client = await stack.enter_async_context(
            httpx.AsyncClient(
                headers=dict(server.headers),
                timeout=httpx.Timeout(server.timeout, read=None),
                event_hooks={"response": [self._watch_response]},
            )
        )
        streams = await stack.enter_async_context(
            streamable_http_client(server.url, http_client=client)
        )
        return streams[:2]

    async def _watch_response(self, response: httpx.Response) -> None:
        """Have a stream of events that breaks off end its call, for which the SDK would wait on."""
        kind = response.headers.get("content-type", "")
        if response.request.method == "POST" and kind.startswith("text/event-stream"):
            request_id = json.loads(response.request.content).get("id")
            stream: Any = response.stream

            def give_up() -> None:
                if self._session:
                    self._session.give_up(request_id)

            response.stream = WatchedStream(stream, give_up)

    async def _perform(
        self, open_call: _OpenCall, perform: Callable[[], Awaitable[types.CallToolResult]]
    ) -> types.CallToolResult:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._performing.add(task)
        try:
            async with self._turn:
                self._calls.add(open_call)
                # Make a call that must end in time.
                limit = self.server.call_timeout
                scope = asyncio.timeout(limit)
                try:
                    async with scope:
                        return await self._perform_connected(perform)
                except TimeoutError:
                    if not scope.expired():  # an error of the server's own
                        raise
                    why = f"the MCP server {self.name!r} has not answered in {limit:g} s"
                    raise CallCutShort(why) from None
        except CallCutShort:
            raise
        except Exception as error:  # noqa: BLE001  a server raises anything; the model reads it
            return self._build_error(self._describe(error))
        finally:
            self._performing.discard(task)
            self._calls.discard(open_call)
            open_call.ended.set()

    async def _perform_connected(
        self, perform: Callable[[], Awaitable[types.CallToolResult]]
    ) -> types.CallToolResult:
        """Make a call, after a new connection if an HTTP server was restarted before it began."""
        is_http, session = isinstance(self.server, HttpServer), self._session
        is_lost = self._serving is not None and self._serving.done()
        if not (is_http and is_lost):
            try:
                return await self._wait_with_server(perform())
            except Exception as error:
                if not (is_http and self._has_not_begun(error)):
                    raise
        # Open a new session in place of a lost one, unless another call has done so.
        async with self._reconnecting:
            if self._session is session and not self._is_closed:
                await self._end_session()
                async with asyncio.timeout(self.server.timeout):
                    await self._start()
        return await self._wait_with_server(perform())

    def _has_not_begun(self, error: Exception) -> bool:
        """Return whether a call failed as its server refused the connection or the session."""
        if isinstance(error, McpError) and error.error.message == SESSION_LOST:
            return True
        cause = _find_cause(self._failure) if self._failure and _has_ended(error) else error
        cause = _find_cause(cause)
        # What several calls are about is not known.
        return isinstance(cause, httpx.ConnectError) and len(self._calls) == 1

    async def _wait_with_server(self, work: Awaitable[T]) -> T:
        """Return the result of work in the session, which may end before it."""
        task = asyncio.ensure_future(work)
        serving = cast("asyncio.Task[None]", self._serving)  # which `open` has started
        try:
            await asyncio.wait({task, serving}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._failure or ConnectionError(_GONE)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=2 * CANCEL_TIMEOUT)

    async def _handle_elicitation(
        self, _: RequestContext[ClientSession, Any], params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Return the human's answer to a server; the SDK calls this in the connection's loop."""
        if not isinstance(params, types.ElicitRequestFormParams):
            return self._decline("with a page to open")
        form = clean_form(params.requestedSchema)
        if fault := find_form_fault(form):
            return self._decline(f"with a form that cannot be: {fault}")
        if len(self._calls) != 1:
            # The protocol does not say which call it is about.
            return self._decline(f"during {len(self._calls)} calls")
        [open_call] = self._calls
        elicitation = Elicitation(params.message, form)
        open_call.loop.call_soon_threadsafe(open_call.questions.put_nowait, elicitation)
        answer: asyncio.Future[Any] = asyncio.wrap_future(elicitation.answer)
        ended: asyncio.Future[Any] = asyncio.ensure_future(open_call.ended.wait())
        await asyncio.wait({answer, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if answer.done():
            result: types.ElicitResult = answer.result()
            return result
        # The call was cancelled first, so that the server does nothing more for want of an answer.
        answer.cancel()
        text = "the question was stored, and the call cancelled; it is made again with the answer"
        return types.ErrorData(code=types.INVALID_REQUEST, message=text)

    def _ask_human(self, elicitation: Elicitation, number: int) -> types.ElicitResult:
        """Return the answer to a server's question, or leave it in the inbox.

        Raises:
            GraphInterrupt: It has no answer yet.
        """
        form = elicitation.form
        message = join_printable(elicitation.message[:LONGEST_MESSAGE])
        text = f"The MCP server {self.name!r} asks: {message}"
        shown = json.dumps([text, form], sort_keys=True)
        try:
            place = (str(get_config()["configurable"].get(IDEMPOTENCY_KEY)), number)
        except (KeyError, RuntimeError):  # LangGraph's, where there is no run
            return self._decline("outside of a run")
        try:
            answer = interrupt(text, response_schema=build_form_schema(form))
        except (KeyError, RuntimeError):  # LangGraph's, where there is no task
            return self._decline("outside of a run")
        except GraphInterrupt:
            self._asked[place] = shown
            while len(self._asked) > REMEMBERED_QUESTIONS:
                self._asked.popitem(last=False)
            raise
        if self._asked.get(place, shown) != shown:
            LOG.warning("the MCP server %r asks something else than was answered", self.name)
            return types.ElicitResult(action="cancel")
        action, content = read_form_answer(answer, form)
        return types.ElicitResult.model_validate({"action": action, "content": content})

    def _decline(self, why: str) -> types.ElicitResult:
        LOG.warning("a question of the MCP server %r was declined: it asks %s", self.name, why)
        return types.ElicitResult(action="decline")

    def _build_error(self, why: str) -> types.CallToolResult:
        text = f"The MCP server {self.name!r} has failed: {why}"
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], isError=True
        )

    def _build_failure(self, why: str) -> McpServerFailed:
        words = self._stderr.read()
        return McpServerFailed(self.name, f"{why}; it has said: {words}" if words else why)

    def _describe(self, error: BaseException) -> str:
        error = _find_cause(error)
        if _has_ended(error) and self._failure:  # the error that ended the connection says more
            error = _find_cause(self._failure)
        if _has_ended(error):
            return _GONE
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            return f"it has sent what MCP does not allow: {where}: {first['msg']}"[:LONGEST_QUOTE]
        return describe_error(error)


def _find_cause(error: BaseException) -> BaseException:
    """Return the first of the errors that a task group has collected."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _has_ended(error: BaseException) -> bool:
    """Return whether an error says no more than that the connection has ended."""
    closed = isinstance(error, McpError) and error.error.code == types.CONNECTION_CLOSED
    ended = (anyio.ClosedResourceError, anyio.BrokenResourceError, BrokenPipeError)
    return closed or isinstance(error, ended)


class StderrTail:
    """The last lines that a process has written to its standard error, read in a thread."""

    def __init__(self) -> None:
        self._lines = deque[str](maxlen=3)
        self._thread: Thread | None = None

    @contextmanager
    def open(self) -> Iterator[TextIO]:
        """Yield the file that the process writes to; with its end of it, the thread ends, too."""
        reading, writing = os.pipe()
        self._thread = Thread(target=self._collect, args=(reading,), daemon=True)
        self._thread.start()
        with os.fdopen(writing, "w") as file:
            yield file

    def read(self) -> str:
        """Return the last lines in one, without secrets; waits a moment for the process's end."""
        if self._thread:
            self._thread.join(timeout=1)
        return " / ".join(self._lines)

    def _collect(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as file:
            while line := file.readline(LONGEST_LINE):
                text = join_printable(redact_secrets(line.decode(errors="replace")))
                if text:
                    LOG.debug("an MCP server has said: %s", text)
                    self._lines.append(text[:LONGEST_QUOTE])
