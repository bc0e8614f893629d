"""What a provider would refuse of a tool is known when the tree is made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.tools import StructuredTool
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import SecretStr

from echelons import Agent, Limits, Permissions, Session, Spawn
from echelons.testing import Call, OpenAIServer, ScriptedModel
from tests.error_codes import raises_code


def build_tool(name: str = "look", description: str = "Look.") -> StructuredTool:
    return StructuredTool.from_function(lambda n: n, name=name, description=description)


def build_tree(model: Any, *tools: Any) -> Agent:
    middle = Agent("middle", subordinates=[Agent("leaf", tools=tools)])
    return Agent("head", model=model, subordinates=[middle])


STRICT: list[Callable[[], Any]] = [
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

    with raises_code("invalid_tool", match=r"head/middle/leaf.*64") as refused:
        Session(tree, ":memory:")
    assert refused.value.tool == name


@pytest.mark.parametrize("make", STRICT)
def test_long_description_and_many_tools_are_refused_for_openai(make: Any) -> None:
    with raises_code("invalid_tool", match="head/middle/leaf: its description has 1025"):
        build_tree(make(), build_tool(description="x" * 1_025)).compile()
    many = [build_tool(f"look_{number}") for number in range(129)]
    with raises_code("invalid_tool", match="one of 131 tools"):
        build_tree(make(), *many).compile()

    build_tree(make(), build_tool(description="x" * 1_024), *many[:100]).compile()


def test_other_models_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    tree = build_tree(ScriptedModel(["x"]), build_tool(description="x" * 1_025))

    with caplog.at_level(logging.WARNING):
        tree.compile()
        tree.compile()

    assert [each.getMessage().count("1025 characters") for each in caplog.records] == [1]


class Looking(AgentMiddleware[Any, Any]):
    """Brings tools."""

    def __init__(self, *tools: Any) -> None:
        super().__init__()
        self.tools = [*tools]


def test_tools_of_middleware_that_is_inherited_are_checked() -> None:
    leaf = Agent("leaf", inherit_middleware=True)
    long = Looking(build_tool(description="x" * 1_025))

    with raises_code("invalid_tool", match="head/leaf: its description has 1025"):
        Agent(
            "head", model=ScriptedModel(["x"]), middleware=[long], subordinates=[own(leaf)]
        ).compile()
    with raises_code("invalid_tool", match=r"head: .*64"):
        Agent("head", model=ScriptedModel(["x"]), middleware=[Looking(build_tool("a b"))]).compile()


def own(agent: Agent) -> Agent:
    """Return an agent with a model whose provider has limits."""
    return replace(agent, model=STRICT[0]())


def test_built_in_tools_count() -> None:
    many = [build_tool(f"look_{number}") for number in range(128)]
    below = [Agent("leaf", model=ScriptedModel(["x"]))]

    Agent("head", model=STRICT[0](), tools=many).compile()
    Agent("head", model=STRICT[0](), tools=many[:126], subordinates=below).compile()
    with raises_code(
        "invalid_tool", match="one of 129 tools of the agent, 2 built-in ones included"
    ):
        Agent("head", model=STRICT[0](), tools=many[:127], subordinates=below).compile()


def test_long_result_of_an_agent_with_all_the_tools_it_may_have_is_read_no_further() -> None:
    many = [build_tool(f"look_{number}") for number in range(127)]
    long = StructuredTool.from_function(lambda: "x" * 9_000, name="read", description="Read.")
    model = ScriptedModel([Call("read"), "Done."])
    head = Agent("head", model=model, tools=[*many, long], limits=Limits(result_tokens=200))

    with Session(head, ":memory:") as session:
        assert session.send("go").result().text == "Done."

    assert [len(each.tools) for each in model.calls] == [128, 128]


def test_built_in_tool_that_a_place_makes_impossible_is_refused_for_the_whole_tree() -> None:
    leaf = Agent("leaf", builtin_tools=("recall",))

    with raises_code("invalid_field", match=r"leaf.*builtin_tools.*recall"):
        Agent("head", model=ScriptedModel(["x"]), subordinates=[leaf]).compile()


def build_spawner(model: Any, **more: Any) -> Agent:
    spawn = Spawn(profiles=("guide",))
    return Agent("head", model=model, permissions=Permissions(spawn=spawn), **more)


def test_name_of_a_tool_of_an_agent_that_may_be_spawned_is_refused_at_once() -> None:
    guide = Agent("guide", subordinates=[Agent("scout", tools=[build_tool("look up")])])

    with raises_code("invalid_tool", match=r"guide/scout.*64"):
        Session(build_spawner(ScriptedModel(["x"])), ":memory:", spawnable={"guide": guide})


@pytest.mark.parametrize("brings", ["tools", "middleware"])
def test_spawned_agent_that_a_provider_would_refuse_is_refused_by_name(brings: str) -> None:
    long = build_tool(description="x" * 1_025)
    given: Any = [long] if brings == "tools" else [Looking(long)]
    guide = Agent("guide", **{brings: given})
    spawn = Call("spawn_subordinate", {"role": "guide", "profile": "guide", "message": "go"})

    with OpenAIServer([spawn, "I do it myself.", "Still here."]) as server:
        model: Any = ChatOpenAI(model="gpt-test", base_url=server.url, api_key=SecretStr("k"))
        with Session(build_spawner(model), ":memory:", spawnable={"guide": guide}) as session:
            assert session.send("go").result().text == "I do it myself."
            assert session.send("go").result().text == "Still here."

        answer = server.requests[1].body["messages"][-1]["content"]
    assert "'look'" in answer and "its description has 1025 characters" in answer
