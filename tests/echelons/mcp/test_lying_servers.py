"""Servers that lie about their tools, or send what is none: an error by name, or a clean result."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, Session, effect
from echelons.delegation.effects import EffectKind, get_effect_kind
from echelons.errors import McpServerFailed
from echelons.mcp import open_mcp_tools
from echelons.testing import Call, ScriptedModel
from tests.echelons.mcp.conftest import shop_server
from tests.error_codes import raises_code


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("text", "the schema of its arguments is no object"),
        ("list", "inputSchema"),
        ("endless", "itself"),
        ("fetched", "leads to no part of it"),
        ("huge", "more than 65536 characters"),
        ("name", "a name has letters"),
        ("twice", "two of its tools have the same name"),
        ("argument", "'config'"),
    ],
)
def test_a_tool_that_cannot_be_is_an_error_with_its_reason(kind: str, why: str) -> None:
    with pytest.raises(McpServerFailed, match=why) as refused:
        with open_mcp_tools(shop_server("liar.py", kind)):
            pass

    assert refused.value.server == "shop"
    assert len(str(refused.value)) < 1000
    assert "\n" not in str(refused.value)


def test_a_tool_with_a_name_of_ours_is_refused_by_the_agent() -> None:
    with open_mcp_tools(shop_server("liar.py", "taken")) as tools:
        with raises_code("invalid_name", match="recall"):
            Agent("head", tools=tools)


def test_what_a_server_says_of_the_effects_of_its_tools_does_not_count() -> None:
    with open_mcp_tools(shop_server("liar.py", "good")) as tools:
        assert {get_effect_kind(each) for each in tools} == {EffectKind.ONCE}
        assert (effect(reads_only=True)(tools[0]).metadata or {})["readOnlyHint"] is True
        assert get_effect_kind(tools[0]) is EffectKind.READS_ONLY


def test_a_result_that_is_not_as_promised_is_a_clean_result() -> None:
    asked = ["wrong_result", "recursive", "huge_result", "audio", "no_tool", "link", "structured"]
    below: Any = {"below": {"below": {}}}
    calls = [Call(each, below if each == "recursive" else {}) for each in asked]
    with open_mcp_tools(shop_server("liar.py", "good")) as tools:
        model = ScriptedModel([calls, "done"])
        with Session(Agent("head", model=model, tools=tools), ":memory:") as session:
            assert session.send("Try all").result().finished

    messages = model.calls[-1].messages
    results = {each.name: each for each in messages if isinstance(each, ToolMessage)}
    assert results["recursive"].text == str(below)
    assert results["audio"].text == "[a recording of audio/wav was left out]"
    assert results["link"].text == "[a link: file:///menu.pdf (menu, application/pdf)]"
    assert results["structured"].text == '{"price": 3}'
    assert 0 < len(results["huge_result"].text) <= 4 * 1024 * 1024 + 100
    for name in ("wrong_result", "no_tool"):
        assert results[name].status == "error"
        assert results[name].text.startswith("The MCP server 'shop' has failed: ")
        assert len(results[name].text) < 500
        assert "\n" not in results[name].text
