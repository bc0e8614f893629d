"""Every agent thinks with its own model, its superior's, or the planner."""

from __future__ import annotations

from langchain_core.language_models.fake_chat_models import FakeListChatModel

from echelons import Agent
from echelons.graphs.inherited import resolve_models
from echelons.nodes.model_call import supports_tool_calls
from echelons.offline.planner import OfflinePlanner
from echelons.testing import ScriptedModel
from tests.error_codes import raises_code


def answer(task: str) -> str:
    return task


def test_an_agent_inherits_from_the_nearest_superior_with_a_model() -> None:
    top, own = ScriptedModel(["x"]), ScriptedModel(["y"])
    low = Agent("low", subordinates=[Agent("lowest")])
    tree = Agent(
        "head",
        model=top,
        subordinates=[Agent("left"), Agent("right", model=own, subordinates=[low])],
    )

    assert resolve_models(tree) == {
        "head": top,
        "left": top,
        "right": own,
        "low": own,
        "lowest": own,
    }


def test_root_without_model_and_all_below_use_the_planner() -> None:
    models = resolve_models(Agent("head", subordinates=[Agent("eat")]))

    assert isinstance(models["head"], OfflinePlanner)
    assert models["eat"] is models["head"]


def test_a_model_that_several_agents_name_is_made_once() -> None:
    tree = Agent(
        "head",
        model=ScriptedModel(["x"]),
        subordinates=[Agent("a", model="offline"), Agent("b", model="offline")],
    )

    models = resolve_models(tree)

    assert models["a"] is models["b"]


def test_what_is_no_agent_needs_no_model() -> None:
    assert list(
        resolve_models(Agent("head", model=ScriptedModel(["x"]), subordinates=[answer]))
    ) == ["head"]


def test_an_unknown_name_is_refused() -> None:
    with raises_code("unknown_model"):
        resolve_models(Agent("head", subordinates=[Agent("eat", model="gpt")]))


def test_a_model_that_cannot_call_is_named_with_the_agent_that_would_have_to() -> None:
    mute = FakeListChatModel(responses=["x"])

    assert not supports_tool_calls(mute)
    assert supports_tool_calls(ScriptedModel(["x"]))
    assert resolve_models(Agent("head", model=mute)) == {"head": mute}
    with raises_code("model_cannot_call") as refused:
        resolve_models(Agent("head", model=mute, subordinates=[answer]))
    assert refused.value.agent == "head"
    assert "FakeListChatModel" in str(refused.value)
