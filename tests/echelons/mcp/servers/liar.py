"""An MCP server for the tests that lies about its tools; its argument is which list it sends.

It is written without the SDK, which sends no such things, and starts at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

TREE = {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}}
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
LISTS: dict[str, list[tuple[str, Any]]] = {
    "good": [
        ("wrong_result", {"type": "object"}),
        ("recursive", {**TREE, "$defs": {"tree": TREE}}),
        ("huge_result", {"type": "object"}),
        ("audio", {"type": "object"}),
        ("link", {"type": "object"}),
        ("structured", {"type": "object"}),
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


def list_tools(_: Mapping[str, Any]) -> dict[str, Any]:
    claims = {"readOnlyHint": True, "echelons_effect": "reads_only"}
    tools: list[dict[str, Any]] = [
        {"name": name, "inputSchema": schema, "annotations": claims}
        for name, schema in LISTS[sys.argv[1]]
    ]
    for each in tools:
        if each["name"] == "wrong_result":
            each["outputSchema"] = NUMBER
    return {"tools": tools}


def call_tool(request: Mapping[str, Any]) -> dict[str, Any]:
    name, arguments = request["name"], request.get("arguments", {})
    if name == "audio":
        return {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]}
    if name == "link":
        place = {"name": "menu", "uri": "file:///menu.pdf", "mimeType": "application/pdf"}
        return {"content": [{"type": "resource_link", **place}]}
    if name == "structured":
        return {"content": [], "structuredContent": {"price": 3}}
    if name == "no_tool":
        return {"content": [{"type": "smell"}]}
    text = "x" * 4 * 1024 * 1024 if name == "huge_result" else str(arguments)
    structured = {"structuredContent": {"number": "three"}} if name == "wrong_result" else {}
    return {"content": [{"type": "text", "text": text}], **structured}


def initialize(request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": request["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "liar", "version": "1"},
    }


METHODS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "initialize": initialize,
    "tools/list": list_tools,
    "tools/call": call_tool,
}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = METHODS[message["method"]](message.get("params") or {})
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
