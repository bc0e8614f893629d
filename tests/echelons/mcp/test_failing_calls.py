"""Calls of MCP servers that are late, broken, or lost with a server that was restarted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool

from echelons import Agent, Session, effect
from echelons.errors import CallCutShort
from echelons.mcp import HttpServer, McpServer, open_mcp_tools
from echelons.testing import Call, ScriptedModel, delegate
from tests.echelons.mcp.conftest import Notes, serve, serve_shop, shop_server
from tests.told_lines import without_marks

LATE = "the MCP server 'shop' has not answered in 0.3 s"


def build_buyer(tools: Sequence[BaseTool], *steps: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel({"head": [delegate("buyer", "go"), "done"], "buyer": [*steps, "bought"]})
    buyer = Agent("buyer", "Buys things", tools=tools)
    return Agent("head", model=model, subordinates=[buyer]), model


def read_results(model: ScriptedModel) -> list[str]:
    last = [call for call in model.calls if call.agent == "buyer"][-1]
    return [without_marks(each.text) for each in last.messages if isinstance(each, ToolMessage)]


@pytest.mark.parametrize("answer", [{"outcome": "happened", "result": "it rained"}, "not_happened"])
def test_late_call_is_asked_about_once(tmp_path: Path, notes: Notes, answer: Any) -> None:
    server = shop_server(tools=["wait"], env={"SHOP_LOG": str(notes.path)}, call_timeout=0.3)
    database = tmp_path / "shop.sqlite"
    with open_mcp_tools(server) as tools:
        head, model = build_buyer(tools, Call("wait", {}))
        with Session(head, database, thread="t") as session:
            [question] = session.send("Wait").result().questions
        assert [notes.read(), notes.read()] == ["waiting", "cancelled"]
        assert question.value["kind"] == "outcome_unknown"
        assert LATE in question.value["question"]
        with Session(head, database, thread="t") as session:
            [again] = session.inbox()
            assert again.value == question.value
            assert session.answer(question.id, answer).result().text == "done"

    happened = isinstance(answer, dict)
    expected = "it rained" if happened else "Error: the call was cut short and did not happen"
    assert [each[: len(expected)] for each in read_results(model)] == [expected]


@pytest.mark.parametrize("kind", [{"idempotent": True}, {"reads_only": True}], ids=str)
async def test_late_call_that_may_be_repeated_is_an_error_that_says_so(kind: Any) -> None:
    with open_mcp_tools(shop_server(tools=["wait"], call_timeout=0.3)) as tools:
        head, model = build_buyer([effect(**kind)(each) for each in tools], Call("wait", {}))
        async with Session(head, ":memory:") as session:
            assert (await (await session.asend("Wait")).result()).text == "done"

    assert read_results(model) == [f"Error: {LATE}; the call may have happened"]


async def test_late_call_without_a_journal_is_an_error_that_says_so() -> None:
    with open_mcp_tools(shop_server(tools=["wait"], call_timeout=0.3)) as tools:
        head, model = build_buyer(tools, Call("wait", {}))
        await head.compile().ainvoke({"messages": [("user", "Wait")]})

    assert read_results(model) == [f"Error: {LATE}; the call may have happened"]


def test_tool_that_raises_call_cut_short_is_asked_about_and_may_run_again() -> None:
    attempts: list[str] = []

    @tool
    def pay(to: str) -> str:
        """Pay."""
        attempts.append(to)
        if len(attempts) == 1:
            raise CallCutShort("the bank has closed the connection")
        return f"paid {to}"

    head, model = build_buyer([pay], Call("pay", {"to": "Eve"}))
    with Session(head, ":memory:") as session:
        [question] = session.send("Pay").result().questions
        assert "the bank has closed the connection" in question.value["question"]
        assert session.answer(question.id, "run_again").result().text == "done"

    assert attempts == ["Eve", "Eve"]
    assert read_results(model) == ["paid Eve"]


@contextmanager
def serve_broken(kind: str, transport: str) -> Iterator[McpServer]:
    if transport == "stdio":
        yield shop_server("broken.py", kind, call_timeout=None)
        return
    with serve("broken.py", kind, "http") as (port, _):
        yield HttpServer(f"http://127.0.0.1:{port}/mcp", name="shop", call_timeout=None)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("kind", ["text", "other_id", "no_id", "no_result", "list"])
def test_call_ends_at_once_if_the_server_breaks_the_protocol(kind: str, transport: str) -> None:
    with serve_broken(kind, transport) as server, open_mcp_tools(server) as tools:
        head, model = build_buyer(tools, Call("price", {}))
        with Session(head, ":memory:") as session:
            assert session.send("Buy").result().text == "done"

    [result] = read_results(model)
    assert result.startswith("The MCP server 'shop' has failed: ")
    assert "\n" not in result


def test_calls_go_on_after_an_http_server_was_restarted(notes: Notes) -> None:
    calls = [Call("price", {"article": each}) for each in ("pen", "book", "ink")]
    with serve_shop(notes) as (port, process):
        server = HttpServer(f"http://127.0.0.1:{port}/mcp", name="shop", tools=["price"])
        with open_mcp_tools(server) as tools:
            head, model = build_buyer(tools, *calls[:1])
            with Session(head, ":memory:") as session:
                session.send("Buy").result()
            process.kill()
            process.wait()
            with serve_shop(notes, port) as (_, second):
                head, model = build_buyer(tools, *calls[1:2])
                with Session(head, ":memory:") as session:
                    session.send("Buy").result()
                assert read_results(model) == ["book: 4 EUR"]
                second.kill()
                second.wait()
                # Nothing listens: the call has not begun, and the connection is tried once.
                head, model = build_buyer(tools, *calls[2:])
                with Session(head, ":memory:") as session:
                    session.send("Buy").result()
                [failed] = read_results(model)
                assert failed.startswith("The MCP server 'shop' has failed: ")
            with serve_shop(notes, port):
                head, model = build_buyer(tools, *calls[2:])
                with Session(head, ":memory:") as session:
                    session.send("Buy").result()
                assert read_results(model) == ["ink: 3 EUR"]

    assert [notes.read() for _ in range(3)] == ["price pen", "price book", "price ink"]
