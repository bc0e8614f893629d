"""`open_mcp_tools`: the tools of MCP servers, checked, and usable in any event loop."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_mcp_adapters.interceptors import MCPToolCallRequest
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession, types

from echelons.background_loop import BackgroundLoop
from echelons.errors import McpServerFailed
from echelons.langgraph_internals import parent_config
from echelons.mcp.call_meta import CALL_META, META_KEY, OuterLimits, count_calls
from echelons.mcp.mcp_connection import McpConnection
from echelons.mcp.mcp_servers import McpServer
from echelons.text.error_lines import join_printable
from echelons.text.json_schema import find_schema_fault

LONGEST_SCHEMA = 64 * 1024
"""Characters of a tool's schema, as JSON; a model reads it with each request."""
LONGEST_DESCRIPTION = 16 * 1024
"""Characters of a tool's description."""
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that the providers of models take."""
HINTS = frozenset({"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"})
"""What a server says of a tool that is kept as its metadata; nothing depends on it."""
TAKEN_ARGUMENTS = frozenset({"config", "run_manager", "runtime", "self"})
"""Arguments that LangChain passes to a tool itself, so that a model's would be lost."""


class McpTools:
    """The tools of some MCP servers, as the context manager that `open_mcp_tools` returns.

    Entered with `with` or with `async with`, it gives the list of the tools. The servers are
    connected in an event loop of their own, one session each, until it is left.
    """

    def __init__(self, *servers: McpServer) -> None:
        self._servers = servers
        self._loop = BackgroundLoop()
        self._connections: list[McpConnection] = []

    def __enter__(self) -> list[BaseTool]:
        try:
            return self._loop.run(self._open)
        except BaseException:
            self._loop.close()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            self._loop.run(self._close)
        finally:
            self._loop.close()

    async def __aenter__(self) -> list[BaseTool]:
        opening = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        # What it raises after a cancellation is its end, and no news.
        opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._loop.close)
            raise

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.__exit__, *exc)

    async def _open(self) -> list[BaseTool]:
        try:
            tools: list[BaseTool] = []
            for server in self._servers:
                connection = McpConnection(server)
                self._connections.append(connection)
                loaded = await connection.open(_ToolLoader(connection).load)
                _check_names(connection.name, loaded, tools)
                tools += loaded
        except BaseException:
            await self._close()
            raise
        return tools

    async def _close(self) -> None:
        connections, self._connections = self._connections, []
        await asyncio.gather(*(connection.close() for connection in connections))


def open_mcp_tools(*servers: McpServer) -> McpTools:
    """Return the tools of MCP servers, for agents, as a context manager.

    They work in sync and in async runs, at any level. A call whose server has died or failed has a
    result that says so. A call that is cancelled, by a deadline or a stop, is cancelled at the
    server. A question of a server (elicitation) is one in the inbox.

    Args:
        servers: Each a `StdioServer` or an `HttpServer`.

    Raises:
        McpServerFailed: When it is entered: a server does not start or answer, or one of its tools
            cannot be used, or is called like another.

    Examples:
        >>> from echelons import Agent
        >>> from echelons.mcp import StdioServer, open_mcp_tools
        >>> with open_mcp_tools(StdioServer("no-such-program")) as tools:
        ...     agent = Agent("head", tools=tools)
        Traceback (most recent call last):
        ...
        echelons.errors.McpServerFailed: the MCP server 'no-such-program' cannot be used: ...
    """
    return McpTools(*servers)


class _CurrentSession:
    """The session of a connection, as LangChain's tools see it, also after a reconnection."""

    def __init__(self, first: ClientSession, connection: McpConnection) -> None:
        self.list_tools = first.list_tools
        self.call_tool = connection.call_tool


class _ToolLoader:
    """Loads the tools of one connection, and makes their calls through it."""

    def __init__(self, connection: McpConnection) -> None:
        self._connection = connection

    async def load(self, session: ClientSession) -> list[BaseTool]:
        """Return the tools of a server that are wanted.

        Raises:
            McpServerFailed: One of them cannot be used, or there is none of a name.
        """
        server = self._connection.server
        current = cast("ClientSession", _CurrentSession(session, self._connection))
        loaded = await load_mcp_tools(current, tool_interceptors=[self._call])
        names = {tool.name: tool for tool in loaded}
        wanted = list(names) if server.tools is None else list(server.tools)
        for name in wanted:
            if tool := names.get(name):
                tool.name = f"{self._connection.name}_{name}" if server.prefix else name
                # A server may send any keys there, also that by which we declare effects.
                tool.metadata = {
                    key: value for key, value in (tool.metadata or {}).items() if key in HINTS
                }
            if fault := find_tool_fault(tool) if tool else "there is none":
                why = f"its tool {name[:100]!r}: {fault}; leave it out with tools=[…]"
                raise McpServerFailed(self._connection.name, why)
        if server.tools is None and len(names) != len(loaded):
            raise McpServerFailed(self._connection.name, "two of its tools have the same name")
        return [names[name] for name in wanted]

    async def _call(
        self,
        request: MCPToolCallRequest,
        handler: Callable[[MCPToolCallRequest], Awaitable[Any]],
    ) -> types.CallToolResult:
        config, limits = parent_config.get() or {}, await asyncio.to_thread(OuterLimits.find)

        async def perform() -> types.CallToolResult:
            if limits:
                CALL_META.set({META_KEY: limits.model_dump(exclude_none=True)})
            # This is the only interceptor, so what the handler returns comes from the session.
            return _make_readable(cast("types.CallToolResult", await handler(request)))

        result = await self._connection.call(perform)
        await asyncio.to_thread(count_calls, result, config)
        return result


def find_tool_fault(tool: BaseTool) -> str:
    """Return why a tool of a server cannot be given to a model; empty if it can."""
    if not TOOL_NAME.fullmatch(tool.name):
        return "a name has letters, digits, '_' and '-', 64 at most"
    if len(tool.description) > LONGEST_DESCRIPTION:
        return f"its description has more than {LONGEST_DESCRIPTION} characters"
    try:
        fault = _find_schema_fault(tool.args_schema)
        if not fault:
            convert_to_openai_tool(tool)
    except RecursionError:
        fault = "its schema is nested too deep, or refers to itself"
    except Exception as error:  # noqa: BLE001  LangChain may not be able to use it
        fault = f"LangChain cannot use its schema ({type(error).__name__})"
    return fault


def _find_schema_fault(schema: Any) -> str:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return "the schema of its arguments is no object"
    if len(json.dumps(schema)) > LONGEST_SCHEMA:
        return f"its schema has more than {LONGEST_SCHEMA} characters"
    if fault := find_schema_fault(schema):
        return f"its schema: {join_printable(fault[:200])}"
    if taken := TAKEN_ARGUMENTS & set(schema.get("properties", {})):
        return f"its argument {min(taken)!r} has a name that LangChain uses itself"
    return ""


def _check_names(server: str, tools: Iterable[BaseTool], others: Iterable[BaseTool]) -> None:
    """Check that no tool of a server is called like one of the servers before.

    Raises:
        McpServerFailed: One of them is.
    """
    if same := {tool.name for tool in tools} & {other.name for other in others}:
        why = f"its tool {min(same)!r} is called like another; set prefix=True"
        raise McpServerFailed(server, why)


def _make_readable(result: types.CallToolResult) -> types.CallToolResult:
    """Return a result that a model can read.

    LangChain cannot take recordings, shows no structured content, and makes of each link a file
    that the provider is to open.
    """
    content = [_show_block(block) for block in result.content]
    if not content and result.structuredContent is not None:
        shown = json.dumps(result.structuredContent, ensure_ascii=False)
        content.append(types.TextContent(type="text", text=shown))
    return result.model_copy(update={"content": content})


def _show_block(block: types.ContentBlock) -> types.ContentBlock:
    """Return a block, or the text that stands for it."""
    match block:
        case types.AudioContent():
            text = f"[a recording of {block.mimeType} was left out]"
        case types.ResourceLink():
            parts = (block.title or block.name, block.description, block.mimeType)
            text = f"[a link: {block.uri} ({', '.join(filter(None, parts))})]"
        case _:
            return block
    return types.TextContent(type="text", text=text)
