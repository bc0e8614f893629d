"""What an edit may give to a tool follows from the tool, however it declares its arguments."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolArg, StructuredTool, tool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command
from pydantic import BaseModel

from echelons import Agent, Permissions, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel
from tests.told_lines import list_notices

CONFIG: RunnableConfig = {"configurable": {"thread_id": "1"}}


class Address(BaseModel):
    town: str


@tool
def nested(to: Address) -> str:
    """Mail."""
    return f"mailed {to.town}"


@tool
def injected(to: str, runtime: ToolRuntime, secret: Annotated[str, InjectedToolArg] = "s") -> str:
    """Mail."""
    return f"mailed {to} {secret}"


@tool
def without() -> str:
    """Mail."""
    return "mailed"


def by_json(schema: dict[str, Any]) -> StructuredTool:
    return StructuredTool.from_function(
        lambda **given: f"mailed {given}", name="by_json", description="Mail.", args_schema=schema
    )


CLOSED = {
    "title": "by_json",
    "type": "object",
    "properties": {"to": {"type": "string"}},
    "required": ["to"],
}


@pytest.mark.parametrize(
    ("given", "arguments", "wrong", "right"),
    [
        (nested, {"to": {"town": "Rome"}}, {"to": {"town": 7}}, {"to": {"town": "Oslo"}}),
        (injected, {"to": "a"}, {"to": "b", "secret": "mine"}, {"to": "b"}),
        (without, {}, {"to": "b"}, {}),
        (by_json(CLOSED), {"to": "a"}, {"to": 7}, {"to": "b"}),
    ],
    ids=["nested", "injected", "without", "by_json"],
)
def test_an_edit_is_checked_against_the_arguments_that_a_model_may_give(
    given: Any, arguments: Any, wrong: Any, right: Any
) -> None:
    name = given.name
    model = ScriptedModel([Call(name, arguments), "done"])
    permissions = Permissions(approvals={name: "ask"})
    with SqliteCheckpointer(":memory:") as saver:
        graph = Agent("head", model=model, tools=[given], permissions=permissions).compile(saver)
        asked = graph.invoke({"messages": [("user", "go")]}, CONFIG)["__interrupt__"]

        for args in (wrong, right):
            assert [each.value["name"] for each in asked] == [name]
            decision = {"type": "edit", "edited_action": {"name": name, "args": args}}
            out = graph.invoke(Command(resume=decision), CONFIG)
            asked = out.get("__interrupt__", ())

    answer = out["messages"][-2]
    assert answer.text.startswith("mailed")
    [notice] = list_notices([answer])[0]
    assert notice.startswith("A human has changed the arguments of this call to ")
