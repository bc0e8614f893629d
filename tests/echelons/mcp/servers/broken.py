"""An MCP server that breaks the protocol in the middle of a call, over stdio or HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

TOOL = {"name": "price", "inputSchema": {"type": "object", "properties": {}}}
RESULTS = {
    "initialize": {
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "broken", "version": "1"},
        "protocolVersion": "2025-06-18",
    },
    "tools/list": {"tools": [TOOL]},
}


def answer(message: Mapping[str, Any], kind: str) -> str:
    """Return the answer to a request, which breaks the protocol if it is a call."""
    head: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in RESULTS:
        return json.dumps({**head, "result": RESULTS[message["method"]]})
    answers: dict[str, Any] = {
        "other_id": {**head, "id": 4711, "result": {"content": []}},
        "no_id": {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}},
        "no_result": head,
        "list": [head],
    }
    return "Internal error" if kind == "text" else json.dumps(answers[kind])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        message = json.loads(self.rfile.read(size))
        body = answer(message, sys.argv[1]) if "id" in message else ""
        is_page = body == "Internal error"
        self.send_response(200 if body else 202)
        self.send_header("content-type", "text/html" if is_page else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    if len(sys.argv) > 2:
        http = HTTPServer(("127.0.0.1", 0), Handler)
        print(http.server_port, flush=True)
        http.serve_forever()
    print("broken is starting", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(answer(message, sys.argv[1]), flush=True)


if __name__ == "__main__":
    main()
