"""An agent is checked when it is made, and never changes afterwards."""

from __future__ import annotations

import copy
import functools
from dataclasses import FrozenInstanceError, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.prebuilt import ToolNode

from echelons import Agent, Capability, Limits, subordinate
from echelons.testing import ScriptedModel, delegate
from echelons.tree.names import RESERVED_NAMES
from tests.error_codes import raises_code


@tool
def search(query: str) -> str:
    """Look something up."""
    return f"found {query}"


def measure(query: str) -> str:
    """Measure something."""
    return query


def undocumented(query: str) -> str:
    return query


class Caller:
    """Can be called, and is no function."""

    def __call__(self, task: str) -> str:
        return task


# What is kept


def test_an_agent_needs_no_more_than_a_name() -> None:
    agent = Agent("head")

    assert (agent.name, agent.description, agent.prompt, agent.model) == ("head", "", "", None)
    assert (agent.tools, agent.subordinates, dict(agent.capabilities)) == ((), (), {})
    assert agent.limits == Limits()


@pytest.mark.parametrize("field", ["name", "subordinates", "tools", "limits", "other"])
def test_an_agent_cannot_be_changed(field: str) -> None:
    agent = Agent("head")

    # On Python 3.11 a frozen class with slots refuses a name it does not know by a TypeError.
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        setattr(agent, field, "changed")
    assert agent.name == "head"


def test_lists_and_mappings_that_change_afterwards_never_reach_the_agent() -> None:
    tools: list[Any] = [search]
    subordinates: list[Any] = [Agent("eat")]
    capabilities = {"food": 0.5}
    agent = Agent("head", tools=tools, subordinates=subordinates, capabilities=capabilities)

    tools.append(measure)
    subordinates.append(Agent("sleep"))
    capabilities["food"] = 0.9
    capabilities["rooms"] = 1.0

    assert agent.tools == (search,)
    assert [each.name for each in agent.subordinates] == ["eat"]
    assert dict(agent.capabilities) == {"food": 0.5}


def test_the_capabilities_of_an_agent_cannot_be_written_to() -> None:
    capabilities = cast("dict[str, float]", Agent("head", capabilities={"food": 0.5}).capabilities)

    with pytest.raises(TypeError):
        capabilities["food"] = 1.0


def test_a_list_that_is_shared_by_two_agents_ties_them_in_nothing() -> None:
    shared: list[Any] = [search]
    first = Agent("first", tools=shared)
    shared.append(measure)
    second = Agent("second", tools=shared)

    assert first.tools == (search,)
    assert second.tools == (search, measure)


def test_tools_and_subordinates_may_come_from_generators() -> None:
    agent = Agent(
        "head",
        tools=cast("Any", (each for each in (search, measure))),
        subordinates=cast("Any", (Agent(name) for name in ("eat", "sleep"))),
    )

    assert agent.tools == (search, measure)
    assert [each.name for each in agent.subordinates] == ["eat", "sleep"]


def test_a_deep_copy_of_an_agent_is_the_agent_itself() -> None:
    agent = Agent("head", model=ScriptedModel(["done"]), subordinates=[Agent("eat")])

    assert copy.deepcopy(agent) is agent
    assert copy.deepcopy({"team": [agent]})["team"][0] is agent


def test_two_agents_of_one_description_are_two_agents() -> None:
    assert Agent("head") != Agent("head")
    assert len({Agent("head"), Agent("head")}) == 2


def test_an_agent_with_one_field_replaced_is_checked_anew() -> None:
    agent = Agent("head", "Plans", tools=[search])

    assert replace(agent, name="chief").tools == (search,)
    with raises_code("invalid_name"):
        replace(agent, name="no good")


# Names


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "two words",
        "1st",
        "a:b",
        "a/b",
        "é",
        "a\n",
        "x" * 65,
        None,
        5,
        *sorted(RESERVED_NAMES),
    ],
)
def test_a_name_that_cannot_be_a_node_is_refused(name: Any) -> None:
    with raises_code("invalid_name") as refused:
        Agent(name)

    assert refused.value.name == name
    assert repr(name) in str(refused.value)
    assert "63 letters" in str(refused.value)


@pytest.mark.parametrize("name", ["a", "A", "x" * 64, "a-b_c9", "Reason", "reason2"])
def test_any_other_name_of_letters_digits_and_dashes_is_taken(name: str) -> None:
    assert Agent(name).name == name


# Subordinates and models


def test_one_agent_may_work_in_two_trees() -> None:
    model = ScriptedModel({"*": [delegate("eat", "dinner"), "planned"], "eat": ["pizza"]})
    eat = Agent("eat", "Finds places to eat")
    north = Agent("north", model=model, subordinates=[eat])
    south = Agent("south", model=model, subordinates=[eat, Agent("sleep")])

    answers = [
        team.compile(":memory:").invoke(
            {"messages": [("user", "plan")]}, {"configurable": {"thread_id": team.name}}
        )["messages"]
        for team in (north, south)
    ]

    assert [messages[-1].text for messages in answers] == ["planned", "planned"]
    assert [call.path for call in model.calls if call.agent == "eat"] == ["north/eat", "south/eat"]


def test_two_agents_may_share_a_model_object() -> None:
    model = ScriptedModel({"head": [delegate("eat", "dinner"), "planned"], "eat": ["pizza"]})
    head = Agent("head", model=model, subordinates=[Agent("eat", model=model)])

    result = head.compile().invoke({"messages": [("user", "plan")]})

    assert result["messages"][-1].text == "planned"
    assert [call.agent for call in model.calls] == ["head", "eat", "head"]


def test_an_agent_without_a_model_uses_that_of_the_nearest_superior_with_one() -> None:
    top = ScriptedModel({"head": [delegate("middle", "go"), "end"]})
    below = ScriptedModel({"middle": [delegate("leaf", "go"), "end"], "leaf": ["end"]})
    middle = Agent("middle", model=below, subordinates=[Agent("leaf")])

    Agent("head", model=top, subordinates=[middle]).compile().invoke({"messages": [("user", "x")]})

    assert [call.agent for call in top.calls] == ["head", "head"]
    assert [call.agent for call in below.calls] == ["middle", "leaf", "middle"]


@pytest.mark.parametrize(
    "model", ["", "  ", 5, b"openai:x", object(), SimpleNamespace(bind_tools=1), ScriptedModel]
)
def test_what_cannot_be_called_like_a_model_is_refused(model: Any) -> None:
    with raises_code("invalid_field") as refused:
        Agent("head", model=model)

    assert (refused.value.agent, refused.value.value) == ("head", model)
    for part in ("'head'", repr(model), "openai:gpt-5-mini", "inherit"):
        assert part in str(refused.value)


# Tools


def test_langchain_tools_and_documented_functions_are_tools() -> None:
    async def wait(seconds: float) -> str:
        """Wait a while."""
        return str(seconds)

    assert Agent("head", tools=[search, measure, wait]).tools == (search, measure, wait)


@pytest.mark.parametrize(
    "given",
    [
        *(None, 5, "search", {"type": "function"}, object(), Caller(), int, type(search)),
        *(undocumented, lambda query: query, functools.partial(measure)),
        *(RunnableLambda(measure), ToolNode([search])),
    ],
)
def test_what_is_no_tool_is_refused(given: Any) -> None:
    with raises_code("unknown_tool") as refused:
        Agent("head", tools=[search, given])

    assert refused.value.agent == "head"
    assert refused.value.tool is given
    for part in ("'head'", repr(given)[:80], "docstring"):
        assert part in str(refused.value)


def test_a_lambda_is_no_tool_even_with_a_docstring() -> None:
    nameless = lambda query: query  # noqa: E731
    nameless.__doc__ = "Look something up."

    with raises_code("unknown_tool"):
        Agent("head", tools=[nameless])


@pytest.mark.parametrize("given", [None, 5, "search", b"search", {"search": search}, measure])
def test_tools_that_are_no_list_are_refused(given: Any) -> None:
    with raises_code("unknown_tool") as refused:
        Agent("head", tools=given)

    assert refused.value.tool is given


def test_two_tools_of_one_name_are_refused() -> None:
    def again(query: str) -> str:
        """Look again."""
        return query

    again.__name__ = "search"
    with raises_code("duplicate_name") as refused:
        Agent("head", tools=[search, again])

    assert refused.value.name == "search"
    assert refused.value.places == ("tools of head",)
    assert "'search'" in str(refused.value)


@pytest.mark.parametrize("name", ["call_subordinate", "report"])
def test_a_tool_cannot_have_the_name_of_a_built_in_one(name: str) -> None:
    def own(query: str) -> str:
        """Do something else."""
        return query

    own.__name__ = name
    with raises_code("invalid_name") as refused:
        Agent("head", tools=[own])

    assert refused.value.name == name
    assert "a tool of every agent" in str(refused.value)


# Capabilities


@pytest.mark.parametrize("confidence", [0, 1, 0.0, 1.0, 0.25])
def test_a_confidence_is_a_number_from_0_to_1(confidence: float) -> None:
    kept = Agent("head", capabilities={"food": confidence}).capabilities["food"]

    assert kept == confidence
    assert isinstance(kept, float)


@pytest.mark.parametrize(
    "confidence",
    [-0.1, 1.1, float("nan"), float("inf"), True, False, None, "0.5", 10**400, 1j, [0.5]],
)
def test_any_other_confidence_is_refused(confidence: Any) -> None:
    with raises_code("invalid_capability") as refused:
        Agent("head", capabilities={"food": confidence})

    assert (refused.value.agent, refused.value.capability) == ("head", "food")
    assert refused.value.confidence is confidence
    for part in ("'head'", "'food'", repr(confidence)[:15], "from 0 to 1"):
        assert part in str(refused.value)


@pytest.mark.parametrize("capability", ["", "  ", "\n", None, 5, ("food",)])
def test_a_capability_without_a_name_is_refused(capability: Any) -> None:
    with raises_code("invalid_capability") as refused:
        Agent("head", capabilities={capability: 0.5})

    assert refused.value.capability == capability


@pytest.mark.parametrize("given", [None, ["food"], "food", 5, [("food", 0.5)]])
def test_capabilities_that_are_no_mapping_are_refused(given: Any) -> None:
    with raises_code("invalid_capability") as refused:
        Agent("head", capabilities=given)

    assert refused.value.capability == given


# Other fields


@pytest.mark.parametrize(
    "given", [5, ["reports"], {"report": "x"}, {"reports": 5}, {5: "x"}, {"reports": None}]
)
def test_a_guidance_is_a_text_or_texts_for_some_of_its_parts(given: Any) -> None:
    with raises_code("invalid_field", match="mapping to str of some of identity, superior"):
        Agent("head", guidance=given)


def test_a_guidance_does_not_change_with_the_mapping_that_was_given() -> None:
    given = {"reports": "Report."}
    agent = Agent("head", guidance=given)
    given["reports"] = "another"

    assert agent.guidance == {"reports": "Report."}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [("description", None, "str"), ("limits", {"depth": 3}, "Limits")],
)
def test_a_field_of_another_kind_is_refused(field: str, value: Any, expected: str) -> None:
    given: dict[str, Any] = {"name": "head", field: value}
    with raises_code("invalid_field") as refused:
        Agent(**given)

    assert (refused.value.agent, refused.value.field) == ("head", field)
    assert (refused.value.value, refused.value.expected) == (value, expected)
    for part in ("'head'", f"{field}={value!r}", expected, "leave it out"):
        assert part in str(refused.value)


# What is given a name, a purpose and capabilities


@pytest.mark.parametrize(
    "thing",
    [
        measure,
        RunnableLambda(measure, name="my kid"),
        Agent("kid"),
        Agent("kid", model=ScriptedModel(["done"])).compile(),
    ],
)
def test_a_piece_gets_what_an_agent_has(thing: Any) -> None:
    can: dict[str, Capability | float] = {
        "length": Capability(0.8, examples=["how long is it?"]),
        "weight": 0.5,
    }
    given = subordinate(thing, name="gauge", description="Measures", capabilities=can)

    [member] = Agent("head", subordinates=[given]).subordinates

    assert (member.name, member.description) == ("gauge", "Measures")
    assert dict(member.capabilities) == {"length": 0.8, "weight": 0.5}


def test_a_piece_keeps_of_its_own_what_it_is_not_given() -> None:
    renamed = subordinate(measure, name="gauge")
    described = subordinate(renamed, description="")

    assert (renamed.name, renamed.description) == ("gauge", "Measure something.")
    assert (described.name, described.description) == ("gauge", "")
    assert dict(subordinate(renamed, capabilities={}).capabilities) == {}


def test_an_agent_that_is_given_a_name_stays_what_it_was() -> None:
    agent = Agent("eat", tools=[search])

    changed = subordinate(agent, name="food")

    assert isinstance(changed, Agent)
    assert (agent.name, changed.name, changed.tools) == ("eat", "food", agent.tools)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": "my kid"}, "invalid_name"),
        ({"name": 5}, "invalid_name"),
        ({"description": 5}, "invalid_field"),
        ({"capabilities": {"length": 2}}, "invalid_capability"),
        ({"capabilities": ["length"]}, "invalid_capability"),
    ],
)
def test_what_a_piece_is_given_is_checked(given: dict[str, Any], error: str) -> None:
    with raises_code(error):
        subordinate(measure, **given)


def test_what_is_no_piece_is_refused_without_a_superior() -> None:
    with raises_code("invalid_subordinate", match=r"^5 is no subordinate: pass an Agent"):
        subordinate(5)
