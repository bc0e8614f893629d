"""`open_mcp_tools`: the tools of MCP servers, checked, and usable in any event loop."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_mcp_adapters.interceptors import MCPToolCallRequest, MCPToolCallResult
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession, types

from echelons.background_loop import BackgroundLoop
from echelons.errors import McpServerFailed
from echelons.mcp.mcp_connection import McpConnection
from echelons.mcp.mcp_servers import McpServer
from echelons.text.json_schema import find_schema_fault

LONGEST_SCHEMA = 64 * 1024
"""Characters of a tool's schema, as JSON; a model reads it with each request."""
LONGEST_DESCRIPTION = 16 * 1024
"""Characters of a tool's description."""
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that the providers of models take."""
TAKEN_ARGUMENTS = frozenset({"config", "run_manager", "runtime", "self"})
"""Arguments that LangChain passes to a tool itself, so that a model's would be lost."""


class McpTools:
    """The tools of some MCP servers, while it is entered: with `with`, or with `async with`.

    Both give the list of the tools. All servers are connected until the end, and asked for nothing
    more then. See `open_mcp_tools`.
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
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.__exit__, *exc)

    async def _open(self) -> list[BaseTool]:
        try:
            tools: dict[str, BaseTool] = {}
            for server in self._servers:
                connection = McpConnection(server)
                self._connections.append(connection)
                for tool in await connection.open(_ToolLoader(connection).load):
                    if tool.name in tools:
                        why = f"its tool {tool.name!r} is called like another; set prefix=True"
                        raise McpServerFailed(connection.name, why)
                    tools[tool.name] = tool
            return [*tools.values()]
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        connections, self._connections = self._connections, []
        await asyncio.gather(*(each.close() for each in connections))


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
        found = await load_mcp_tools(
            session,
            tool_interceptors=[self._call],
            server_name=self._connection.name if server.prefix else None,
            tool_name_prefix=server.prefix,
        )
        start = len(self._connection.name) + 1 if server.prefix else 0
        names = {each.name[start:]: each for each in found}
        wanted = list(names) if server.tools is None else list(server.tools)
        for name in wanted:
            fault = find_tool_fault(names[name]) if name in names else "there is none"
            if fault:
                why = f"its tool {name[:100]!r}: {fault}; leave it out with tools=[…]"
                raise McpServerFailed(self._connection.name, why)
        if server.tools is None and len(names) != len(found):
            raise McpServerFailed(self._connection.name, "two of its tools have the same name")
        return [names[each] for each in wanted]

    async def _call(
        self,
        request: MCPToolCallRequest,
        handler: Callable[[MCPToolCallRequest], Awaitable[MCPToolCallResult]],
    ) -> MCPToolCallResult:
        async def perform() -> types.CallToolResult:
            result = await handler(request)
            assert isinstance(result, types.CallToolResult)
            return _replace_audio(result)

        return await self._connection.call(perform)


def find_tool_fault(tool: BaseTool) -> str:
    """Return why a tool of a server cannot be given to a model; empty if it can."""
    schema: Any = tool.args_schema
    if not TOOL_NAME.fullmatch(tool.name):
        return "a name has letters, digits, '_' and '-', 64 at most"
    if len(tool.description) > LONGEST_DESCRIPTION:
        return f"its description has more than {LONGEST_DESCRIPTION} characters"
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return "the schema of its arguments is no object"
    try:
        if len(json.dumps(schema)) > LONGEST_SCHEMA:
            return f"its schema has more than {LONGEST_SCHEMA} characters"
        if fault := find_schema_fault(schema):
            return f"its schema: {fault[:200]}"
        if taken := TAKEN_ARGUMENTS & set(schema.get("properties", {})):
            return f"its argument {min(taken)!r} has a name that LangChain uses itself"
        convert_to_openai_tool(tool)
    except RecursionError:
        return "its schema is nested too deep, or refers to itself"
    except Exception as error:  # noqa: BLE001  LangChain may not be able to use it
        return f"LangChain cannot use its schema ({type(error).__name__})"
    return ""


def _replace_audio(result: types.CallToolResult) -> types.CallToolResult:
    """Return a result with a remark in the place of each recording, which LangChain cannot take."""
    content = [
        types.TextContent(type="text", text=f"[a recording of {each.mimeType} was left out]")
        if isinstance(each, types.AudioContent)
        else each
        for each in result.content
    ]
    return result.model_copy(update={"content": content})
