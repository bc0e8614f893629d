"""`reason` shows a model its thread, calls it once, and keeps what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel, chat_models
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableBinding

from echelons.delegation.notice import MARK_KEY
from echelons.identity.lineage import Identity
from echelons.identity.thread_history import Head, Past
from echelons.nodes.model_call import AgentModel, ModelInput, SystemPrompt
from echelons.nodes.reason import Reason, ReasonSettings
from echelons.testing import Call, Reply, ScriptedModel, delegate, report
from tests.callable_tools import build_callable_tools

IDENTITY = Identity(agent="head", path=("head",), thread_id="root", tree="t")
CONFIG: Any = {"metadata": IDENTITY.to_metadata()}
ABILITIES = build_callable_tools("eat", "sleep", tools=("search",), can_report=True)


def build_node(model: Any, history: Any, prompt: SystemPrompt | None = None) -> Reason:
    """Return the node of an agent with a model."""
    settings = ReasonSettings(AgentModel(model, prompt or SystemPrompt()), ABILITIES)
    return Reason(settings, history)


def build_model_input(system: SystemMessage | None, past: Past) -> list[Any]:
    """Return what a model is given of a past and the ordinary state."""
    given = state()
    return ModelInput(system, [*past.messages, *given["messages"]], past, given).build_prompt()


class Remembered:
    """A history that holds one past, and counts how often it is read."""

    def __init__(self, past: Past | None = None) -> None:
        self.past = past or Past()
        self.read: list[Head | None] = []

    def is_durable(self, config: Mapping[str, Any]) -> bool:
        return True

    def load_head(self, config: Mapping[str, Any]) -> Head:
        return Head()

    async def aload_head(self, config: Mapping[str, Any]) -> Head:
        return Head()

    def load_past(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        self.read.append(head)
        return self.past

    async def aload_past(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        return self.load_past(head, config)


def state(*messages: BaseMessage, **more: Any) -> dict[str, Any]:
    given = list(messages or [HumanMessage("plan", id="h")])
    return {"messages": given, MARK_KEY: "~000000000001", **more}


def test_the_model_sees_its_prompt_then_earlier_segments_then_this_one() -> None:
    past = Past((HumanMessage("before"), AIMessage("answered")))

    shown = build_model_input(SystemMessage("Be brief."), past)

    assert [(each.type, each.text) for each in shown] == [
        ("system", "Be brief."),
        ("human", "before"),
        ("ai", "answered"),
        ("human", "plan"),
    ]


def test_without_a_prompt_the_model_sees_no_system_message() -> None:
    shown = build_model_input(None, Past())

    assert [each.type for each in shown] == ["human"]


class Plain(BaseChatModel):
    """A model that answers with the number of messages it is given."""

    @property
    def _llm_type(self) -> str:
        return "plain"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(str(len(messages))))])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)


class TakesAList(Plain):
    """A model whose own `invoke` counts the messages of a list."""

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return AIMessage(f"a list of {len(input)}")

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return self.invoke(input)


@pytest.mark.parametrize("bound", [False, True])
async def test_a_model_that_takes_a_list_is_given_one(bound: bool) -> None:
    for model, said in ((Plain(), "1"), (TakesAList(), "a list of 1")):
        used = model.bind_tools([]) if bound else model
        node = build_node(used, Remembered())
        given: Any = {**CONFIG, "configurable": {}}

        replies = [node.invoke(state(), given), await node.ainvoke(state(), given)]

        assert [each["messages"][0].text for each in replies] == [said, said]


class TakesAListOnly(RunnableBinding[Any, Any]):
    """A binding of its own, which counts the messages of a list."""

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return super().invoke(input, config, **kwargs, count=len(input))

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return await super().ainvoke(input, config, **kwargs, count=len(input))


async def test_a_binding_with_its_own_methods_is_called_by_them() -> None:
    said = "[('a', 1), ('count', 1)] []"
    model = TakesAListOnly(bound=SaysItsArguments(), kwargs={"a": 1})
    node = build_node(model, Remembered())
    given: Any = {**CONFIG, "configurable": {}}

    replies = [node.invoke(state(), given), await node.ainvoke(state(), given)]

    assert [each["messages"][0].text for each in replies] == [said, said]


def test_a_message_of_a_long_thread_is_not_converted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat_models, "convert_to_messages", lambda messages: 1 / 0)
    node = build_node(Plain(), Remembered())

    given: Any = {**CONFIG, "configurable": {}}
    [reply] = node.invoke(state(), given)["messages"]

    assert reply.text == "1"


class SaysItsArguments(Plain):
    """A model that answers with the arguments and tags of its call."""

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        said = f"{sorted(kwargs.items())} {run_manager.tags}"
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (SaysItsArguments().bind(a=1, b=1).bind(b=2), "[('a', 1), ('b', 2)] []"),
        (
            SaysItsArguments().bind(a=1).with_config(tags=["x"]).bind(b=2),
            "[('a', 1), ('b', 2)] ['x']",
        ),
        (SaysItsArguments().bind(a=1).with_retry(), "[('a', 1)] []"),
    ],
)
async def test_what_is_bound_to_a_model_reaches_it(model: Any, said: str) -> None:
    node = build_node(model, Remembered())
    given: Any = {**CONFIG, "configurable": {}}

    replies = [node.invoke(state(), given), await node.ainvoke(state(), given)]

    assert [each["messages"][0].text for each in replies] == [said, said]


# What a reply becomes


async def test_both_worlds_call_the_model_once_and_write_the_same() -> None:
    model = ScriptedModel([[Call("search", {"q": "x"}), delegate("eat", "dinner")]])
    node = build_node(model, Remembered(), SystemPrompt("Be brief."))
    given = state(previous={"checkpoint_id": "c"})

    here, there = node.invoke(given, CONFIG), await node.ainvoke(given, CONFIG)

    assert [[m.type for m in call.messages] for call in model.calls] == [["system", "human"]] * 2
    assert here["messages"][0].tool_calls == there["messages"][0].tool_calls
    assert set(here) == set(there) == {"messages", "heads"}


async def test_a_segment_that_has_reported_calls_no_model() -> None:
    model = ScriptedModel(["never"])
    history = Remembered()
    node = build_node(model, history)
    given = state(response={"status": "partial"})

    assert node.invoke(given, CONFIG) == await node.ainvoke(given, CONFIG) == {}
    assert model.calls == []
    assert history.read == []


async def test_the_past_is_read_through_the_end_of_the_previous_segment() -> None:
    history = Remembered(Past((HumanMessage("before"), AIMessage("answered"))))
    model = ScriptedModel(lambda messages: f"{len(messages)} messages")
    node = build_node(model, history)
    end = Head(agent="eat", checkpoint_ns="ns", checkpoint_id="c")

    update = node.invoke(state(previous=end), CONFIG)
    await node.ainvoke(state(previous=end), CONFIG)

    assert history.read == [end, end]
    assert update["messages"][0].text == "3 messages"


def test_an_error_of_the_model_is_the_errors_own() -> None:
    node = build_node(ScriptedModel([ConnectionError("no line")]), Remembered())

    with pytest.raises(ConnectionError, match="no line"):
        node.invoke(state(), CONFIG)


def test_a_level_without_an_identity_does_not_run() -> None:
    node = build_node(ScriptedModel(["done"]), Remembered())

    with pytest.raises(RuntimeError, match=r"Agent\.compile"):
        node.invoke(state(), {})


def test_usage_and_reasoning_of_a_reply_are_kept() -> None:
    model = ScriptedModel([Reply("done", reasoning="because", usage=(3, 5))])
    node = build_node(model, Remembered())

    [message] = node.invoke(state(), CONFIG)["messages"]

    assert message.usage_metadata["output_tokens"] == 5
    assert message.additional_kwargs["reasoning_content"] == "because"


def test_a_report_beside_other_calls_waits_for_them() -> None:
    model = ScriptedModel([[report("partial", "half"), Call("search", {"q": "x"}, "1")]])
    node = build_node(model, Remembered())

    update = node.invoke(state(), CONFIG)

    assert "response" not in update
    assert [each.type for each in update["messages"]] == ["ai", "tool"]
