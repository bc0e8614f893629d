"""An MCP server for the tests: it sells, asks, waits, lies and dies, on request."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any, Literal

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("shop")


offers = 0


class Amount(BaseModel):
    amount: int


def note(text: str) -> None:
    if path := os.environ.get("SHOP_LOG"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


@server.tool()
def price(article: str) -> str:
    """Return the price of an article."""
    note(f"price {article}")
    return f"{article}: {len(article)} EUR"


@server.tool()
def wrap(
    article: str,
    paper: Literal["red", "gold"] = "red",
    ribbons: list[str] = [],  # noqa: B006  as its schema says so
    copies: int = 1,
    card: str = "",
) -> str:
    """Wrap an article."""
    note(f"wrap {article}")
    return f"{article} in {paper}, {ribbons}, {copies}, {card!r}"


@server.tool()
def environment() -> str:
    """Return the names of the environment's variables."""
    return " ".join(sorted(os.environ))


@server.tool()
def die() -> str:
    """End the process in the middle of the call."""
    os._exit(3)


@server.tool()
def fail() -> str:
    """Raise an exception."""
    raise ValueError("sold out")


@server.tool()
async def wait() -> str:
    """Wait for ever, and note when that is cancelled."""
    note("waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return "never"


@server.tool()
async def order(article: str, context: Context[Any, Any]) -> str:
    """Order an article; asks how many."""
    note(f"order {article}")
    answer: Any = await context.elicit(f"How many of {article}?", Amount)
    note(f"answer {answer.action}")
    if answer.action != "accept":
        return f"no {article}: {answer.action}"
    return f"ordered {answer.data.amount} {article}"


@server.tool()
async def haggle(context: Context[Any, Any]) -> str:
    """Ask for a price, and for another one when called again."""
    global offers  # noqa: PLW0603
    offers += 1
    answer: Any = await context.elicit(f"Is {offers} EUR all right?", Amount)
    return f"haggled: {answer.action}"


@server.tool()
async def browse(context: Context[Any, Any]) -> str:
    """Ask the user to open a page, and to fill in a form that has a list."""
    page = await context.elicit_url("Pay", "https://example.com/pay", "payment-1")
    form = {"type": "object", "properties": {"days": {"type": "array"}}}
    filled = await context.session.elicit_form("When?", form, context.request_id)
    return f"page: {page.action}, form: {filled.action}"


def serve_http() -> None:
    """Serve on a free port of this machine, and print it."""
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with socket.create_server(("127.0.0.1", port)) as listening:
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(server.streamable_http_app(), log_level="error")
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve_http()
    else:
        server.run()
