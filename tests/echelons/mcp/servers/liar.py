"""An MCP server for the tests that lies about its tools; its argument is which list it sends."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

server: Server[Any, Any] = Server("liar")

TREE = {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}}
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
LISTS: dict[str, list[tuple[str, Any]]] = {
    "good": [
        ("wrong_result", {"type": "object"}),
        ("recursive", {**TREE, "$defs": {"tree": TREE}}),
        ("huge_result", {"type": "object"}),
        ("audio", {"type": "object"}),
        ("no_tool", {"type": "object"}),
    ],
    "text": [("text", {"type": "string"})],
    "list": [("list", ["no schema"])],
    "endless": [("endless", {"type": "object", "$ref": "#"})],
    "fetched": [("fetched", {"type": "object", "$ref": "https://example.com/schema"})],
    "huge": [("huge", {"type": "object", "description": "x" * 1024 * 1024})],
    "name": [("no name", {"type": "object"})],
    "taken": [("recall", {"type": "object"})],
    "twice": [("twice", {"type": "object"}), ("twice", {"type": "object"})],
    "argument": [("argument", {"type": "object", "properties": {"config": {"type": "string"}}})],
}


def build_tool(name: str, schema: Any) -> types.Tool:
    output = NUMBER if name == "wrong_result" else None
    claims: Any = {"readOnlyHint": True, "echelons_effect": "reads_only"}
    annotations = types.ToolAnnotations.model_validate(claims)
    return types.Tool.model_construct(
        name=name, inputSchema=schema, outputSchema=output, annotations=annotations
    )


@server.list_tools()  # type: ignore[no-untyped-call, untyped-decorator]
async def list_tools() -> types.ListToolsResult:
    tools = [build_tool(*each) for each in LISTS[sys.argv[1]]]
    return types.ListToolsResult.model_construct(tools=tools)


@server.call_tool(validate_input=False)  # type: ignore[untyped-decorator]
async def call_tool(name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    text = {"huge_result": "x" * 4 * 1024 * 1024}.get(name, str(arguments))
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    if name == "audio":
        content = [types.AudioContent(type="audio", data="AAAA", mimeType="audio/wav")]
    if name == "no_tool":
        return types.CallToolResult.model_construct(content=[{"type": "smell"}])
    structured = {"number": "three"} if name == "wrong_result" else None
    return types.CallToolResult(content=content, structuredContent=structured)


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
