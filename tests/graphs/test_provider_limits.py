"""What a provider would refuse of a tool is known when the tree is made."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langchain_openai import AzureChatOpenAI, ChatOpenAI

from echelons import Agent, Session
from echelons.errors import InvalidTool
from echelons.testing import ScriptedModel


def build_tool(name: str = "look", description: str = "Look.") -> StructuredTool:
    return StructuredTool.from_function(lambda n: n, name=name, description=description)


def build_tree(model: Any, *tools: Any) -> Agent:
    middle = Agent("middle", subordinates=[Agent("leaf", tools=tools)])
    return Agent("head", model=model, subordinates=[middle])


STRICT = [
    lambda: ChatOpenAI(model="gpt-test", api_key="k"),  # type: ignore[arg-type]
    lambda: AzureChatOpenAI(
        azure_endpoint="https://example.org",
        api_version="2024-10-21",
        azure_deployment="d",
        api_key="k",  # type: ignore[arg-type]
    ),
]


@pytest.mark.parametrize("name", ["look up", "look.up", "x" * 65, "schön"])
def test_name_that_no_provider_takes_is_refused_for_every_model(name: str) -> None:
    tree = build_tree(ScriptedModel(["x"]), build_tool(name))

    with pytest.raises(InvalidTool, match=r"head/middle/leaf.*64") as refused:
        Session(tree, ":memory:")
    assert refused.value.tool == name


@pytest.mark.parametrize("make", STRICT)
def test_long_description_and_many_tools_are_refused_for_openai(make: Any) -> None:
    with pytest.raises(InvalidTool, match="head/middle/leaf: its description has 1025"):
        build_tree(make(), build_tool(description="x" * 1_025)).compile()
    many = [build_tool(f"look_{number}") for number in range(129)]
    with pytest.raises(InvalidTool, match="one of 129 tools"):
        build_tree(make(), *many).compile()

    build_tree(make(), build_tool(description="x" * 1_024), *many[:100]).compile()


def test_other_models_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    tree = build_tree(ScriptedModel(["x"]), build_tool(description="x" * 1_025))

    with caplog.at_level(logging.WARNING):
        tree.compile()
        tree.compile()

    assert [each.getMessage().count("1025 characters") for each in caplog.records] == [1]
