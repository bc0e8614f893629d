"""Scripts: which step comes next."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from echelons.testing import ScriptedModel, per_conversation
from echelons.testing.scripts import AgentScripts, ListScript, count_answers, count_turn_answers
from tests.error_codes import raises_code

TWO_TURNS: list[BaseMessage] = [
    SystemMessage("be brief"),
    HumanMessage("one"),
    AIMessage("1"),
    HumanMessage("two"),
    AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "c"}]),
    ToolMessage("r", tool_call_id="c"),
]


def test_a_human_message_begins_a_turn_and_tool_messages_do_not_count() -> None:
    assert count_turn_answers(TWO_TURNS) == 1
    assert count_answers(TWO_TURNS) == 2


def test_a_conversation_without_a_human_message_is_one_turn() -> None:
    assert count_turn_answers([]) == 0
    assert count_turn_answers([AIMessage("a"), AIMessage("b")]) == 2


def test_a_script_starts_over_in_each_turn() -> None:
    model = ScriptedModel(["first", "second"], strict=False)
    assert model.invoke(TWO_TURNS).content == "second"
    assert model.invoke([*TWO_TURNS, HumanMessage("three")]).content == "first"


def test_a_script_per_conversation_goes_on_in_the_next_turn() -> None:
    model = ScriptedModel(per_conversation(["a", "b", "c"]), strict=False)
    assert model.invoke(TWO_TURNS).content == "c"


def test_a_script_per_conversation_can_stand_under_an_agents_name() -> None:
    scripts = AgentScripts({"head": per_conversation(["a"])})
    assert isinstance(scripts.find_script("head"), ListScript)


def test_a_conversation_that_outlasts_its_script_says_whose_and_where() -> None:
    model = ScriptedModel({"head": ["a", "b"]}, strict=False)
    config: Any = {"metadata": {"agent": "head"}}
    with raises_code("script_exhausted") as caught:
        model.invoke([HumanMessage("x"), AIMessage("a"), AIMessage("b")], config)
    assert (caught.value.agent, caught.value.step, caught.value.length) == ("head", 2, 2)
    assert "script of head has 2 steps" in str(caught.value)


def test_an_agent_without_a_script_is_named_with_those_that_have_one() -> None:
    with raises_code("script_missing") as caught:
        AgentScripts({"head": ["a"], "food": ["b"]}).find_script("flights")
    assert caught.value.agent == "flights"
    assert caught.value.known == ("food", "head")


def test_a_caller_without_a_name_has_only_the_script_for_any_agent() -> None:
    assert AgentScripts({"*": ["a"]}).find_script(None) is not None
    with raises_code("script_missing", match="a caller without a name"):
        AgentScripts({"head": ["a"]}).find_script(None)


def test_an_agents_own_script_goes_before_the_one_for_any() -> None:
    model = ScriptedModel({"head": ["mine"], "*": ["anyone's"]})
    assert model.invoke("x", {"metadata": {"agent": "head"}}).content == "mine"
    assert model.invoke("x", {"metadata": {"agent": "food"}}).content == "anyone's"
    assert model.invoke("x").content == "anyone's"


@pytest.mark.parametrize("script", ["hello", 3, None, AIMessage, {1, 2}, [3], [["a"]], [None]])
def test_what_is_no_script_is_refused_where_it_is_written(script: Any) -> None:
    with raises_code("invalid_script", match="a script cannot hold"):
        ScriptedModel({"head": script})


def test_an_empty_script_belongs_to_an_agent_that_must_not_be_called() -> None:
    model = ScriptedModel([])
    with raises_code("script_exhausted", match="has 0 steps"):
        model.invoke("x")
