"""A level has the nodes it can use, and shows its model the tools it has."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.tools import tool
from pydantic import BaseModel

from echelons import Agent, Contract, DelegationPolicy, Permissions, Spawn
from echelons.graphs.level_graph import build_foreign_level
from echelons.testing import Call, ScriptedModel, delegate, report
from tests.error_codes import raises_code


@tool
def search(query: str) -> str:
    """Look something up."""
    return f"found {query}"


def measure(query: str) -> str:
    """Measure something."""
    return f"measured {query}"


class Bill(BaseModel):
    sum: int


UPWARD = {"ask", "report", "send_message"}


def nodes(agent: Agent) -> set[str]:
    return set(agent.compile().nodes) - {"__start__"}


def scripted() -> ScriptedModel:
    return ScriptedModel(["end"])


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {"reason", "act"}),
        ({"tools": [search]}, {"reason", "act"}),
        ({"subordinates": [Agent("eat")]}, {"reason", "act", "delegate"}),
        ({"tools": [search], "subordinates": [measure]}, {"reason", "act", "delegate"}),
    ],
)
def test_a_level_has_the_nodes_that_it_can_use(own: dict[str, Any], expected: set[str]) -> None:
    assert nodes(Agent("head", model=scripted(), **own)) == expected


def test_a_drawing_of_a_level_shows_where_it_goes() -> None:
    head = Agent("head", model=scripted(), tools=[search], subordinates=[measure])

    edges = {(edge.source, edge.target) for edge in head.compile().get_graph().edges}

    assert edges == {
        ("__start__", "reason"),
        ("reason", "reason"),
        ("reason", "act"),
        ("reason", "delegate"),
        ("reason", "__end__"),
        ("act", "reason"),
        ("delegate", "reason"),
    }


def test_a_subordinate_is_a_node_of_its_superiors_delegation() -> None:
    head = Agent("head", model=scripted(), subordinates=[Agent("eat"), measure])

    delegation: Any = dict(head.compile().get_subgraphs())["delegate"]

    assert set(delegation.nodes) == {"__start__", "eat", "measure", "refuse"}


def test_each_agent_is_shown_its_own_tools_only() -> None:
    model = ScriptedModel({"head": [delegate("eat", "x"), "end"], "eat": ["pizza"]})
    eat = Agent("eat", tools=[search])
    head = Agent("head", model=model, tools=[measure], subordinates=[eat])

    head.compile().invoke({"messages": [("user", "go")]})

    assert [set(call.tools) for call in model.calls] == [
        {"measure", "call_subordinate", "ask"},
        {"search", "ask"},
        {"measure", "call_subordinate", "ask"},
    ]


@pytest.mark.parametrize(
    ("own", "tools"),
    [
        ({}, ()),
        ({"permissions": Permissions(contact_user=True)}, ("ask",)),
        ({"builtin_tools": ("ask",)}, ("ask",)),
        ({"builtin_tools": ["send_message", "ask"]}, ("ask", "send_message")),
        ({"permissions": Permissions(contact_user=True), "builtin_tools": ()}, ()),
    ],
)
def test_single_agent_has_no_built_in_tool_unless_it_may_ask(
    own: dict[str, Any], tools: tuple[str, ...]
) -> None:
    model = scripted()

    Agent("head", model=model, **own).compile().invoke({"messages": [("user", "go")]})

    assert model.calls[0].tools == tools


@pytest.mark.parametrize(
    ("superior", "below", "tools"),
    [
        ({}, [Agent("eat")], {"ask"}),
        ({}, [Agent("eat"), Agent("sleep")], {"ask", "report", "send_message"}),
        ({}, [Agent("eat"), measure], {"ask", "report"}),
        ({}, [Agent("eat", subordinates=[measure])], {"ask", "report", "call_subordinate"}),
        ({}, [Agent("eat", contract=Contract(output=Bill))], {"ask", "report"}),
        ({"delegation": DelegationPolicy(progress=True)}, [Agent("eat")], {"ask", "send_message"}),
        ({"permissions": Permissions(spawn=Spawn())}, [Agent("eat")], UPWARD),
        ({}, [Agent("eat", builtin_tools=("report",))], {"report"}),
        ({}, [Agent("eat", builtin_tools=())], set()),
    ],
)
def test_subordinate_has_the_built_in_tools_that_its_place_needs(
    superior: dict[str, Any], below: list[Any], tools: set[str]
) -> None:
    model = ScriptedModel({"head": [delegate("eat", "x"), "end"], "eat": ['{"sum": 1}']})

    Agent("head", model=model, subordinates=below, **superior).compile().invoke(
        {"messages": [("user", "go")]}
    )

    assert {*model.calls[1].tools} == tools


@pytest.mark.parametrize("names", [("search",), ("ask_user",), "ask", (5,), 5])
def test_unknown_built_in_tool_is_refused_with_the_agent(names: Any) -> None:
    with raises_code("invalid_field", match="builtin_tools"):
        Agent("head", builtin_tools=names)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("reprot", "report"), ("send_mesage", "send_message"), ("ask_superior", "ask")],
)
def test_unknown_built_in_tool_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    with raises_code("invalid_field", match=f"'{name}'; pass a value of type '{nearest}', the n"):
        Agent("head", builtin_tools=(name,))


@pytest.mark.parametrize("name", ["report", "call_subordinate", "spawn_subordinate", "pin"])
def test_built_in_tool_that_the_place_makes_impossible_is_refused(name: str) -> None:
    with raises_code("invalid_field", match=f"'{name}'"):
        Agent("head", model=scripted(), builtin_tools=(name,)).compile()


def test_policy_with_joins_shows_delegate_many() -> None:
    model = scripted()
    policy = DelegationPolicy(joins=True)
    below = [Agent("eat"), Agent("sleep")]

    Agent("head", model=model, subordinates=below, delegation=policy).compile().invoke(
        {"messages": [("user", "go")]}
    )

    assert model.calls[0].tools == ("call_subordinate", "delegate_many", "ask")


def test_root_has_no_superior_to_report_to() -> None:
    model = ScriptedModel([report("fulfilled", "x"), "end"])

    messages = (
        Agent("head", model=model, tools=[search])
        .compile()
        .invoke({"messages": [("user", "go")]})["messages"]
    )

    assert messages[2].status == "error"
    assert "there is no such tool" in messages[2].text


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({}, "You are head."),
        ({"prompt": "Be brief."}, "Be brief.\n\nYou are head."),
        ({"description": "Plans trips"}, "You are head."),
        ({"guidance": "We are few.", "prompt": "Be brief."}, "Be brief.\n\nWe are few."),
        ({"guidance": "", "prompt": "Be brief."}, "Be brief."),
    ],
)
def test_prompt_of_an_agent_comes_before_the_guidance(own: dict[str, Any], text: str) -> None:
    model = scripted()

    Agent("head", model=model, **own).compile().invoke({"messages": [("user", "go")]})

    assert [each.text for each in model.calls[0].messages if each.type == "system"] == [text]


@pytest.mark.parametrize("guidance", [None, "We are few."])
def test_system_message_ends_with_the_roster(guidance: str | None) -> None:
    model = scripted()
    days = Agent("days", capabilities={"days": 0.9}, subordinates=[Agent("eat")])
    find = Agent("find", "Finds\nthings.", tools=[search])

    Agent("head", model=model, subordinates=[days, find], guidance=guidance).compile().invoke(
        {"messages": [("user", "go")]}
    )

    [system] = [each.text for each in model.calls[0].messages if each.type == "system"]
    assert system.partition("\n\nOnly lines with")[0].endswith(
        "Your subordinates:\n- days: days. Subordinates: eat.\n- find: Finds things. Tools: search."
    )


def test_agent_without_guidance_and_prompt_has_no_system_prompt() -> None:
    model = scripted()

    Agent("head", "Plans trips", model=model, guidance="").compile().invoke(
        {"messages": [("user", "go")]}
    )

    assert [each.type for each in model.calls[0].messages] == ["human"]


def test_functions_become_tools_under_their_own_name() -> None:
    model = ScriptedModel([Call("measure", {"query": "x"}), "end"])

    messages = (
        Agent("head", model=model, tools=[measure])
        .compile()
        .invoke({"messages": [("user", "go")]})["messages"]
    )

    assert messages[2].text == "measured x"


def test_a_model_that_cannot_call_serves_an_agent_that_has_nothing_to_call() -> None:
    mute = FakeListChatModel(responses=["pizza"])
    model = ScriptedModel({"head": [delegate("eat", "x"), "end"]})
    head = Agent("head", model=model, subordinates=[Agent("eat", model=mute)])

    messages = head.compile().invoke({"messages": [("user", "go")]})["messages"]

    assert messages[2].text == "pizza"


@pytest.mark.parametrize("own", [{"tools": [search]}, {"subordinates": [measure]}])
def test_a_model_that_cannot_call_is_refused_where_it_would_have_to(own: dict[str, Any]) -> None:
    with raises_code("model_cannot_call", match="'head'"):
        Agent("head", model=FakeListChatModel(responses=["x"]), **own).compile()


def test_a_member_of_no_known_kind_has_no_level() -> None:
    with pytest.raises(TypeError, match="no kind of subordinate"):
        build_foreign_level(object(), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("below", [(), (measure,)])
def test_only_agent_that_may_spawn_has_tool_and_node(below: tuple[Any, ...]) -> None:
    def build(spawn: Spawn | None) -> tuple[set[str], set[str], list[str]]:
        permissions = Permissions(spawn=spawn)
        model = scripted()
        head = Agent("head", model=model, subordinates=below, permissions=permissions)
        graph = head.compile()
        graph.invoke({"messages": [("user", "go")]})
        delegation: Any = graph.nodes.get("delegate")
        inner = set(delegation.bound.nodes) if delegation else set()
        shown = [*model.calls[0].tools]
        return set(graph.nodes) - {"__start__"}, inner - {"__start__"}, shown

    names = {"measure"} if below else set[str]()
    nodes_without, inner_without, shown_without = build(None)
    nodes_with, inner_with, shown_with = build(Spawn())

    assert nodes_without == {"reason", "act"} | ({"delegate"} if below else set())
    assert inner_without == (names | {"refuse"} if below else set())
    assert nodes_with == {"reason", "act", "delegate"}
    assert inner_with == names | {"refuse", "dispatch"}
    assert {*shown_with} - {*shown_without} == {
        "spawn_subordinate",
        "dismiss_subordinate",
    } | (set() if below else {"call_subordinate", "ask"})


async def test_tree_whose_siblings_have_subordinates_is_drawn() -> None:
    north = Agent("north", subordinates=[Agent("camp", subordinates=[Agent("scout")])])
    head = Agent("head", subordinates=[north, Agent("south", subordinates=[Agent("boat")])])
    graph = head.compile()

    drawn = graph.get_graph(xray=True)

    mermaid = drawn.draw_mermaid()
    assert mermaid == (await graph.aget_graph(xray=True)).draw_mermaid()
    for name in ("delegate", "north", "delegate-north", "camp", "delegate-camp", "delegate-south"):
        assert f"\tsubgraph {name}\n" in mermaid
    # Studio finds nodes by LangGraph's names.
    assert "delegate:north:delegate:camp:reason" in drawn.nodes
