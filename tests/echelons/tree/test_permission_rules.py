"""A rule that would hold nothing is refused when the tree is built, and so is one that widens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda, RunnableSequence
from langgraph.graph import START, MessagesState, StateGraph

from echelons import Agent, Budget, Permissions, Session, Spawn, subordinate
from echelons.errors import PermissionsWidened
from echelons.testing import ScriptedModel
from echelons.tree.names import BUILT_IN_TOOLS
from echelons.tree.permission_rules import fit_permissions
from tests.error_codes import raises_code


def mail(to: str) -> str:
    """Send a mail."""
    return to


def decide(arguments: Mapping[str, Any]) -> Any:
    return "ask"


def rules(**approvals: Any) -> Permissions:
    return Permissions(approvals=approvals)


def test_a_rule_names_a_tool_or_a_subordinate_of_any_level_below() -> None:
    clerk = Agent("clerk", tools=[mail])
    mid = Agent("mid", subordinates=[clerk], permissions=rules(mail="ask"))

    head = Agent(
        "head", subordinates=[mid], permissions=rules(mail=decide, clerk="deny", mid="ask")
    )

    assert dict(head.permissions.approvals) == {"mail": decide, "clerk": "deny", "mid": "ask"}


@pytest.mark.parametrize("name", ["mial", "head", "Mail", "reason"])
def test_a_name_that_nothing_has_is_refused(name: str) -> None:
    clerk = Agent("clerk", tools=[mail])

    with raises_code("unknown_tool") as refused:
        Agent("head", subordinates=[clerk], permissions=rules(**{name: "ask"}))

    assert (refused.value.agent, refused.value.tool) == ("head", name)
    assert str(refused.value).endswith("of the agent or below it: clerk, mail")


@pytest.mark.parametrize("name", sorted(BUILT_IN_TOOLS))
def test_a_built_in_tool_is_refused_with_what_decides_instead(name: str) -> None:
    with raises_code("unknown_tool") as refused:
        Agent("head", tools=[mail], permissions=rules(**{name: "ask"}))

    said = str(refused.value)
    assert "it is a built-in tool, and no rule is for it: " in said
    for word, names in {
        "contact_user": {"ask_user", "ask_later"},
        "superior": {"report", "ask", "ask_superior"},
        "sibling_messages": {"send_message"},
        "subordinates": {"call_subordinate", "delegate_many"},
    }.items():
        assert (word in said) == (name in names)


def test_a_name_beside_or_above_the_agent_is_refused() -> None:
    with raises_code("unknown_tool"):
        Agent("clerk", permissions=rules(mail="ask"))


ORDER = ["allow", decide, "ask", "deny"]


@pytest.mark.parametrize("above", ORDER)
@pytest.mark.parametrize("own", ORDER)
def test_a_subordinate_can_only_narrow(above: Any, own: Any) -> None:
    clerk = Agent("clerk", tools=[mail], permissions=rules(mail=own))
    mid = Agent("mid", subordinates=[clerk])
    if ORDER.index(own) >= ORDER.index(above):
        Agent("head", subordinates=[mid], permissions=rules(mail=above))
        return

    with pytest.raises(PermissionsWidened) as refused:
        Agent("head", subordinates=[mid], permissions=rules(mail=above))

    error = refused.value
    assert (error.agent, error.superior, error.name) == ("head/mid/clerk", "head", "mail")
    assert "'head/mid/clerk' has the rule" in str(error)


def test_a_copy_of_an_agent_keeps_its_permissions() -> None:
    clerk = Agent("clerk", tools=[mail], permissions=rules(mail="ask"))

    copied = subordinate(clerk, name="copied")

    assert isinstance(copied, Agent)
    assert copied.permissions == clerk.permissions


def build_foreign(kind: str) -> Any:
    agent = create_agent(ScriptedModel(["done"]), [mail], name="foreign")
    if kind == "agent":
        return agent
    builder = StateGraph(MessagesState)
    inner: Any = agent
    if kind == "tree":
        inner = Agent("inner", subordinates=[Agent("clerk", tools=[mail])]).compile()
    builder.add_node("inside", inner)
    builder.add_edge(START, "inside")
    graph = builder.compile(name="foreign")
    if kind == "sequence":
        return subordinate(RunnableSequence(RunnableLambda(str), graph), name="foreign")
    return graph


@pytest.mark.parametrize("kind", ["agent", "graph", "tree", "sequence"])
@pytest.mark.parametrize("tools", [[], [mail]], ids=["alone", "own too"])
def test_a_tool_inside_a_foreign_graph_is_refused_by_name(kind: str, tools: list[Any]) -> None:
    foreign = build_foreign(kind)
    Agent("head", tools=tools, subordinates=[foreign], permissions=rules(foreign="ask"))

    with raises_code("unknown_tool") as refused:
        Agent("head", tools=tools, subordinates=[foreign], permissions=rules(mail="ask"))

    assert "a tool inside the foreign graph 'head/foreign'" in str(refused.value)


def test_a_compiled_tree_stands_for_its_agent() -> None:
    tree = Agent("inner", tools=[mail]).compile()

    Agent("head", subordinates=[tree], permissions=rules(mail="ask", inner="deny"))


def test_a_tool_that_is_given_to_spawned_agents_is_the_agents_own() -> None:
    clerk = Agent("clerk", tools=[mail])

    with raises_code("unknown_tool") as refused:
        Agent("head", subordinates=[clerk], permissions=Permissions(spawn=Spawn(tools=("mail",))))

    assert (refused.value.agent, refused.value.tool) == ("head", "mail")
    assert Agent("head", tools=[mail], permissions=Permissions(spawn=Spawn(tools=("mail",))))


@pytest.mark.parametrize(
    ("above", "own", "field"),
    [
        ({"levels": 1}, {"levels": 2}, "spawn.levels"),
        ({"at_once": 2}, {"at_once": 3}, "spawn.at_once"),
        ({"total": 2}, {"total": 3}, "spawn.total"),
        ({"kinds": ("drone",)}, {"kinds": ("mortal",)}, "spawn.kinds"),
        ({"profiles": ("a",)}, {"profiles": ("b",)}, "spawn.profiles"),
    ],
)
def test_an_agent_may_spawn_no_more_than_its_superior_if_that_may(
    above: dict[str, Any], own: dict[str, Any], field: str
) -> None:
    def build(rules: Spawn | None) -> Agent:
        clerk = Agent("clerk", permissions=Permissions(spawn=Spawn(**own)))
        mid = Agent("mid", subordinates=[clerk])
        return Agent("head", subordinates=[mid], permissions=Permissions(spawn=rules))

    with pytest.raises(PermissionsWidened) as refused:
        build(Spawn(**above))

    assert (refused.value.agent, refused.value.name) == ("head/mid/clerk", field)
    assert build(Spawn(**own)) and build(None)


def test_a_rule_for_spawning_needs_an_agent_that_may() -> None:
    with raises_code("unknown_tool", match=r"Permissions\(spawn=…\) decides"):
        Agent("head", permissions=rules(spawn_subordinate="ask"))
    clerk = Agent("clerk", permissions=Permissions(spawn=Spawn()))
    assert Agent("head", subordinates=[clerk], permissions=rules(spawn_subordinate="ask"))


def test_permissions_fit_an_agent_that_has_lost_what_they_name() -> None:
    clerk = Agent("clerk", tools=[mail])
    given = Permissions(
        approvals={"mail": "ask", "gone": "deny", "clerk": "ask", "spawn_subordinate": "ask"},
        tools=("mail", "gone"),
        contact_user=True,
    )

    whole = fit_permissions(Agent("head", subordinates=[clerk]), given)
    alone = fit_permissions(Agent("head"), given.model_copy(update={"spawn": Spawn()}))

    assert dict(whole.approvals) == {"mail": "ask", "clerk": "ask"}
    assert (whole.tools, whole.contact_user) == (("mail",), True)
    assert (dict(alone.approvals), alone.tools) == ({"spawn_subordinate": "ask"}, ())


def test_budget_is_no_wider_than_that_of_a_superior() -> None:
    leaf = Agent("leaf", permissions=Permissions(budget=Budget(tokens=200, calls=5)))
    Agent("head", permissions=Permissions(budget=Budget(tokens=200)), subordinates=[leaf])

    with pytest.raises(PermissionsWidened, match=r"budget\.tokens") as caught:
        Agent("head", permissions=Permissions(budget=Budget(tokens=199)), subordinates=[leaf])

    assert caught.value.agent == "head/leaf"


def test_unknown_profile_is_refused_with_the_nearest() -> None:
    tree = Agent("head", permissions=Permissions(spawn=Spawn(profiles=("scuot",))))

    with raises_code("invalid_setting", match="did you mean 'scout'"):
        Session(tree, ":memory:", spawnable={"scout": Agent("scout")})
