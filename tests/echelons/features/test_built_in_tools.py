"""A feature gives agents a tool with nothing but its folder and its line in the registry."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, ClassVar

import pytest
from langchain_core.messages import ToolCall, ToolMessage
from pydantic import BaseModel

from echelons import Agent, Session
from echelons.features import registry
from echelons.features.feature import AgentHooks, BuiltIn, Feature, Place, ToolScope
from echelons.plans import Plan
from echelons.testing import Call, ScriptedModel


class GreetArgs(BaseModel):
    name: str


class Greet(BuiltIn):
    name, arguments = "greet", GreetArgs

    def build_schema(self) -> dict[str, Any]:
        parameters: Mapping[str, Any] = {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        }
        function = {"name": self.name, "description": "Greets.", "parameters": parameters}
        return {"type": "function", "function": function}

    def execute(self, call: ToolCall, scope: ToolScope) -> Plan[dict[str, Any]]:
        messages = yield from scope.read_thread()
        text = f"Hello {call['args']['name']}, after {len(messages)} messages"
        return {"messages": [ToolMessage(text, tool_call_id=call["id"], name=self.name)]}


class GreetingHooks(AgentHooks):
    tools = (Greet(),)


class GreetingFeature(Feature):
    name: ClassVar[str] = "greeting"

    def bind(self, place: Place) -> AgentHooks | None:
        return GreetingHooks()


@pytest.fixture
def greeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put a feature of the tests last in the registry."""
    module = ModuleType("echelons.features.greeting.feature")
    module.FEATURE = GreetingFeature()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(registry, "FEATURES", (*registry.FEATURES, registry.Entry("greeting")))
    yield
    registry.load_feature.cache_clear()


@pytest.mark.usefixtures("greeting")
def test_tool_of_a_new_feature_is_shown_called_and_answered() -> None:
    model = ScriptedModel([Call("greet", {"name": "Ada"}), "over"])
    session = Session(Agent("head", model=model), ":memory:")

    assert session.send("go").result().text == "over"

    assert model.calls[0].tools[-1] == "greet"
    assert str(model.calls[-1].messages[-1].text) == "Hello Ada, after 2 messages"


@pytest.mark.usefixtures("greeting")
def test_arguments_of_its_calls_are_mended_by_their_model() -> None:
    model = ScriptedModel([Call("greet", {"name": ["Ada"]}), "over"])
    session = Session(Agent("head", model=model), ":memory:")

    session.send("go").result()

    assert str(model.calls[-1].messages[-1].text).startswith("Hello")
