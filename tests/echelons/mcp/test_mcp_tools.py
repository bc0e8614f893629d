"""Tools of MCP servers: real servers, called by agents in real runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import anyio
import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, DelegationPolicy, Permissions, Session
from echelons.errors import McpServerFailed, WrongAnswer
from echelons.mcp import HttpServer, StdioServer, mcp_connection, open_mcp_tools
from echelons.testing import Call, ScriptedModel, delegate
from tests.echelons.mcp.conftest import Notes, shop_server
from tests.fork_server import ForkedProcess


@pytest.fixture(scope="module")
def shop() -> Iterator[Sequence[Any]]:
    """The tools of a server that several tests call, each in runs of its own."""
    with open_mcp_tools(shop_server()) as tools:
        yield tools


def build_tree(tools: Sequence[Any], *calls: Call) -> tuple[Agent, ScriptedModel]:
    """Return a head whose subordinate makes some calls, and the model of both."""
    model = ScriptedModel({"head": [delegate("buyer", "go"), "done"], "buyer": [*calls, "bought"]})
    buyer = Agent("buyer", "Buys things", tools=tools)
    return Agent("head", model=model, subordinates=[buyer]), model


def read_results(model: ScriptedModel) -> list[str]:
    """Return the results of tools in the last call that the buyer's model got."""
    last = [call for call in model.calls if call.agent == "buyer"][-1]
    return [each.text for each in last.messages if isinstance(each, ToolMessage)]


def test_the_tools_of_a_server_work_below_the_root_in_sync_and_async_runs() -> None:
    with open_mcp_tools(shop_server(tools=["price", "fail"])) as tools:
        assert [each.name for each in tools] == ["price", "fail"]
        tree, model = build_tree(tools, Call("price", {"article": "pen"}), Call("fail", {}))

        with Session(tree, ":memory:") as session:
            assert session.send("Buy").result().text == "done"

            async def send() -> str:
                run = await session.asend("Buy again")
                return (await run.result()).text

            assert asyncio.run(send()) == "done"

    assert read_results(model)[-2:] == ["pen: 3 EUR", "Error executing tool fail: sold out"]
    assert model.calls[-2].agent == "buyer"


async def test_the_tools_of_a_server_over_http_work(
    http_shop: tuple[str, ForkedProcess],
) -> None:
    async with open_mcp_tools(HttpServer(http_shop[0], tools=["price"])) as tools:
        tree, model = build_tree(tools, Call("price", {"article": "book"}))
        async with Session(tree, ":memory:") as session:
            run = await session.asend("Buy")
            assert (await run.result()).finished

    assert read_results(model) == ["book: 4 EUR"]


def test_the_process_of_a_server_gets_the_named_environment_and_the_minimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-ours")
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    with open_mcp_tools(shop_server(env={"SHOP_KEY": "${HOME}"}, tools=["environment"])) as tools:
        [result] = asyncio.run(tools[0].ainvoke({}))

    names = set(result["text"].split())
    minimum = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
    assert names - minimum - {"LC_CTYPE"} == {"SHOP_KEY"}  # Python sets that one itself


def test_a_server_that_dies_in_the_middle_is_a_named_result() -> None:
    with open_mcp_tools(shop_server()) as tools:
        tree, model = build_tree(tools, Call("die", {}), Call("price", {"article": "pen"}))
        with Session(tree, ":memory:") as session:
            assert session.send("Buy").result().finished

    gone = "The MCP server 'shop' has failed: it has ended or closed the connection"
    assert read_results(model) == [gone, gone]


def test_a_server_over_http_that_dies_in_the_middle_is_a_named_result(
    http_shop: tuple[str, ForkedProcess],
) -> None:
    with open_mcp_tools(HttpServer(http_shop[0], name="shop")) as tools:
        tree, model = build_tree(tools, Call("die", {}), Call("price", {"article": "pen"}))
        with Session(tree, ":memory:") as session:
            assert session.send("Buy").result().finished

    first, second = read_results(model)
    assert first.startswith("The MCP server 'shop' has failed: ")
    assert second.startswith("The MCP server 'shop' has failed: ")
    assert "\n" not in first + second


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_stopped_run_cancels_its_call_at_the_server(
    transport: str, notes: Notes, request: pytest.FixtureRequest
) -> None:
    server: Any = shop_server(env={"SHOP_LOG": str(notes.path)})
    if transport == "http":
        server = HttpServer(request.getfixturevalue("http_shop")[0])
    with open_mcp_tools(server) as tools:
        tree, _ = build_tree(tools, Call("wait", {}))

        async def stop() -> str:
            async with Session(tree, ":memory:") as session:
                run = await session.asend("Buy")
                ending = asyncio.create_task(run.result())
                assert await asyncio.to_thread(notes.read) == "waiting"
                await session.astop()
                result = await ending
                assert await asyncio.to_thread(notes.read) == "cancelled"
                return result.status

        assert asyncio.run(stop()) == "stopped"


def test_the_deadline_of_a_synchronous_run_cancels_the_call_at_the_server(notes: Notes) -> None:
    with open_mcp_tools(shop_server(env={"SHOP_LOG": str(notes.path)})) as tools:
        model = ScriptedModel(
            {"head": [delegate("buyer", "go"), "done"], "buyer": [Call("wait", {})]}
        )
        buyer = Agent("buyer", "Buys things", tools=tools)
        rules = DelegationPolicy(timeout=1)
        head = Agent("head", model=model, subordinates=[buyer], delegation=rules)
        with Session(head, ":memory:") as session:
            session.send("Buy").result()

        assert [notes.read(), notes.read()] == ["waiting", "cancelled"]
    assert "has not answered within 1 s" in model.calls[-1].messages[-1].text


def test_a_question_of_a_server_is_answered_in_the_inbox(notes: Notes) -> None:
    with open_mcp_tools(shop_server(env={"SHOP_LOG": str(notes.path)})) as tools:
        tree, model = build_tree(tools, Call("order", {"article": "pen"}))
        with Session(tree, ":memory:") as session:
            result = session.send("Buy").result()
            [question] = result.questions
            assert result.status == "asking"
            assert question.value == "The MCP server 'shop' asks: How many of pen?"
            assert question.path == "head/buyer"

            assert session.answer(question.id, {"amount": 2}).result().finished

    assert read_results(model) == ["ordered 2 pen"]
    # The call was cancelled while its question waited, and made again with the answer.
    assert [notes.read() for _ in range(3)] == ["order pen", "order pen", "answer accept"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_of_a_server_may_be_declined(action: str, shop: Sequence[Any]) -> None:
    tree, model = build_tree(shop, Call("order", {"article": "pen"}))
    async with Session(tree, ":memory:") as session:
        run = await session.asend("Buy")
        [question] = (await run.result()).questions
        answered = await session.aanswer(question.id, {"action": action})
        assert (await answered.result()).finished

    assert read_results(model) == [f"no pen: {action}"]


def test_an_answer_that_does_not_fit_the_form_of_a_server_is_refused(shop: Sequence[Any]) -> None:
    tree, _ = build_tree(shop, Call("order", {"article": "pen"}))
    with Session(tree, ":memory:") as session:
        [question] = session.send("Buy").result().questions
        with pytest.raises(WrongAnswer):
            session.answer(question.id, {"amount": "many"})


def test_an_answer_is_not_given_to_another_question_than_was_answered(shop: Sequence[Any]) -> None:
    tree, model = build_tree(shop, Call("haggle", {}))
    with Session(tree, ":memory:") as session:
        [question] = session.send("Buy").result().questions
        assert str(question.value).endswith("Is 1 EUR all right?")
        assert session.answer(question.id, {"amount": 1}).result().finished

    assert read_results(model) == ["haggled: cancel"]


def test_a_page_to_open_and_a_form_with_a_list_are_declined(shop: Sequence[Any]) -> None:
    tree, model = build_tree(shop, Call("browse", {}))
    with Session(tree, ":memory:") as session:
        assert session.send("Buy").result().finished

    assert read_results(model) == ["page: decline, form: decline"]


async def test_a_question_during_parallel_calls_is_declined(notes: Notes) -> None:
    server = shop_server(env={"SHOP_LOG": str(notes.path)}, parallel=True)
    async with open_mcp_tools(server) as tools:
        named = {each.name: each for each in tools}
        waiting = asyncio.create_task(named["wait"].ainvoke({}))
        assert await asyncio.to_thread(notes.read) == "waiting"
        [result] = await named["order"].ainvoke({"article": "pen"})
        waiting.cancel()

    assert result["text"] == "no pen: decline"


async def test_calls_of_a_server_run_one_after_another(notes: Notes) -> None:
    async with open_mcp_tools(shop_server(env={"SHOP_LOG": str(notes.path)})) as tools:
        named = {each.name: each for each in tools}
        waiting = asyncio.create_task(named["wait"].ainvoke({}))
        assert await asyncio.to_thread(notes.read) == "waiting"
        second = asyncio.create_task(named["price"].ainvoke({"article": "pen"}))
        waiting.cancel()
        await second
        assert [notes.read(), notes.read()] == ["cancelled", "price pen"]


async def test_a_question_outside_of_a_run_is_declined(shop: Sequence[Any]) -> None:
    [order] = [each for each in shop if each.name == "order"]
    [result] = await order.ainvoke({"article": "pen"})

    assert result["text"] == "no pen: decline"


def test_a_call_after_the_end_of_the_connection_is_a_named_result() -> None:
    with open_mcp_tools(shop_server(tools=["price"])) as tools:
        pass

    [result] = asyncio.run(tools[0].ainvoke({"article": "pen"}))
    assert result["text"] == "The MCP server 'shop' has failed: the connection is closed"


def test_two_servers_with_the_same_tools_need_a_prefix() -> None:
    twice = [shop_server("liar.py", "good", tools=["audio"]) for _ in range(2)]
    with pytest.raises(McpServerFailed, match="'audio' is called like another; set prefix=True"):
        with open_mcp_tools(*twice):
            pass

    other = shop_server(name="other", tools=["price"], prefix=True)
    with open_mcp_tools(shop_server(tools=["price"]), other) as tools:
        assert [each.name for each in tools] == ["price", "other_price"]
        [result] = asyncio.run(tools[1].ainvoke({"article": "pen"}))
    assert result["text"] == "pen: 3 EUR"


def test_a_program_that_is_no_server_says_what_is_wrong() -> None:
    with pytest.raises(McpServerFailed, match="No such file or directory"):
        with open_mcp_tools(shop_server("no-such-file.py")):
            pass
    with pytest.raises(McpServerFailed, match="FileNotFoundError"):
        with open_mcp_tools(StdioServer("no-such-program")):
            pass


def test_a_connection_that_breaks_while_it_is_opened_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The SDK tells that in a group, if a server ends before its first message is written."""

    broken = ExceptionGroup("unhandled errors", [anyio.BrokenResourceError()])
    monkeypatch.setattr(mcp_connection, "stdio_client", Mock(side_effect=broken))
    with pytest.raises(McpServerFailed, match="'shop' cannot be used: it has ended or closed"):
        with open_mcp_tools(shop_server()):
            pass


SILENT = "import sys; sys.stdin.read()"
"""A program that reads until its input ends, and never answers."""


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    before = _list_children()
    with pytest.raises(McpServerFailed, match=r"no answer in 0\.1 s"):
        with open_mcp_tools(StdioServer(sys.executable, ["-c", SILENT], timeout=0.1)):
            pass
    assert _list_children() == before


async def test_opening_may_be_cancelled(notes: Notes) -> None:
    before = _list_children()
    program = f"open({str(notes.path)!r}, 'w').write('begun\\n'); {SILENT}"
    opening = asyncio.create_task(
        open_mcp_tools(StdioServer(sys.executable, ["-c", program])).__aenter__()
    )
    assert await asyncio.to_thread(notes.read) == "begun"
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert _list_children() == before


def test_a_question_of_a_server_is_answered_in_another_session(tmp_path: Path) -> None:
    with open_mcp_tools(shop_server()) as tools:
        tree, _ = build_tree(tools, Call("order", {"article": "pen"}))
        with Session(tree, tmp_path / "threads.sqlite") as session:
            [question] = session.send("Buy").result().questions

    with open_mcp_tools(shop_server()) as tools:
        tree, model = build_tree(tools, Call("order", {"article": "pen"}))
        with Session(tree, tmp_path / "threads.sqlite") as session:
            assert session.answer(question.id, {"amount": 2}).result().finished

    assert read_results(model) == ["ordered 2 pen"]


def test_an_address_where_no_server_is_says_so() -> None:
    with pytest.raises(McpServerFailed, match="ConnectError"):
        with open_mcp_tools(HttpServer("http://127.0.0.1:9/mcp")):
            pass


def test_the_process_of_a_server_ends_with_the_connection() -> None:
    before = set(_list_children())
    with open_mcp_tools(shop_server(tools=["price"])):
        assert set(_list_children()) - before
    assert set(_list_children()) == before


def _list_children() -> list[str]:
    shown = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True
    )
    return [each for each in shown.stdout.split() if Path(f"/proc/{each}").exists()]


ODD_CALLS: list[tuple[dict[str, Any], str]] = [
    ({"copies": None, "card": None}, "pen in red, [], 1, ''"),
    ({"paper": " GOLD"}, "pen in gold, [], 1, ''"),
    ({"ribbons": '["blue"]'}, "pen in red, ['blue'], 1, ''"),
    ({"card": {"to": "Ann"}}, """pen in red, [], 1, '{"to": "Ann"}'"""),
]


@pytest.mark.parametrize("depth", [1, 2])
def test_arguments_that_a_server_does_not_take_are_mended_once(
    shop: Sequence[Any], depth: int
) -> None:
    calls = [Call("wrap", {"article": "pen", **given}) for given, _ in ODD_CALLS]
    tree, model = build_tree(shop, *calls)
    if depth == 1:
        tree = Agent("buyer", "Buys things", model=model, tools=shop)

    with Session(tree, ":memory:") as session:
        assert session.send("Buy").result().finished

    assert read_results(model) == [result for _, result in ODD_CALLS]


def test_error_of_arguments_that_cannot_be_mended_says_what_to_send(shop: Sequence[Any]) -> None:
    tree, model = build_tree(shop, Call("wrap", {"article": "pen", "copies": "many"}))

    with Session(tree, ":memory:") as session:
        assert session.send("Buy").result().finished

    [error] = read_results(model)
    assert error.startswith("Error executing tool wrap: ")
    assert "Send arguments of this schema: " in error
    assert '"copies": {"default": 1' in error
    assert '"required": ["article"]' in error


def test_approval_sees_mended_arguments(shop: Sequence[Any]) -> None:
    given = {"article": "pen", "ribbons": '["blue"]', "paper": "Gold", "copies": None}
    model = ScriptedModel([Call("wrap", given), "wrapped"])
    rules = Permissions(approvals={"wrap": "ask"})
    buyer = Agent("buyer", model=model, tools=[*shop], permissions=rules)
    with Session(buyer, ":memory:") as session:
        [question] = session.send("Buy").result().questions
        assert "{'article': 'pen', 'ribbons': ['blue'], 'paper': 'gold'}" in str(question.value)
        assert session.answer({question.id: "approve"}).result().text == "wrapped"

    assert model.calls[-1].messages[-1].text == "pen in gold, ['blue'], 1, ''"
