"""What the registry knows of spawned agents in any process: kinds, ends, and names for people."""

from __future__ import annotations

from typing import Any

import pytest

from echelons import Agent, Permissions, Session, Spawn, SqliteCheckpointer, ThreadStore
from echelons.testing import Call, ScriptedModel
from echelons.tree.agent_registry import AgentKind, AgentRegistry, AgentState
from tests.scenarios.conftest import World


def build_team(theme: str | None = None) -> Agent:
    """Return an agent that makes two, of which the first makes one."""

    def lead(messages: Any) -> Any:
        if messages[-1].type == "tool":
            return "done"
        roles = ("scout", "clerk") if messages[-1].text == "go" else ()
        return [Call("spawn_subordinate", {"role": each, "message": "work"}) for each in roles]

    def scout(messages: Any) -> Any:
        if messages[-1].type == "tool":
            return "seen"
        return Call("spawn_subordinate", {"role": "helper", "message": "help"})

    model = ScriptedModel({"head": lead, "scout": scout, "*": ["did"]})
    return Agent("head", model=model, theme=theme, permissions=Permissions(spawn=Spawn()))


def test_each_spawned_agent_has_one_name_in_the_whole_database(
    world: World, saver: SqliteCheckpointer
) -> None:
    found = []
    for thread in ("one", "two"):
        session = Session(build_team("birds"), saver, thread=thread, theme="trees")
        world.send(session, "go")
        found += world.do(session, "registry").agents

    again = Session(build_team(), saver, thread="one").registry().agents
    spawned = [each for each in found if each.kind is AgentKind.MORTAL]
    assert len({each.alias for each in spawned}) == len(spawned) == 6
    assert [(each.path, each.alias) for each in again] == [
        (each.path, each.alias) for each in found[:4]
    ]
    assert {each.state for each in spawned} == {AgentState.DISMISSED}
    assert not found[0].alias


def run_script(**roles: Any) -> Any:
    """Return a model that makes the agents of its script with its task, then says `over`."""

    def think(who: str) -> Any:
        def reply(messages: Any) -> Any:
            if messages[-1].type == "tool":
                return "over"
            calls = roles.get(who, {}).get(str(messages[-1].text), "did")
            if not isinstance(calls, list):
                return calls
            return [Call("spawn_subordinate", {"message": "work", **each}) for each in calls]

        return reply

    return ScriptedModel({who: think(who) for who in (*roles, "*")})


def list_states(registry: AgentRegistry) -> dict[str, str]:
    """Return kind and state of each agent that was made at run time, by its role."""
    return {each.role: f"{each.kind} {each.state}" for each in registry.agents if each.role}


def test_registry_has_kinds_and_ended_agents(world: World, saver: SqliteCheckpointer) -> None:
    asking = Call("ask_superior", {"question": "how far?"})
    model = run_script(
        head={
            "go": [
                {"role": "mortal"},
                {"role": "kept", "keep": True},
                {"role": "drone", "kind": "drone"},
                {"role": "asker", "kind": "drone"},
            ],
        },
        asker={"work": asking},
        kept={"work": [{"role": "below", "keep": True}]},
    )
    head = Agent("head", model=model, permissions=Permissions(spawn=Spawn()))
    session = Session(head, saver)

    world.send(session, "go")

    states = {
        "mortal": "mortal dismissed",
        "kept": "mortal done",
        "below": "mortal done",
        "drone": "drone dismissed",
        "asker": "drone waiting",
    }
    assert list_states(world.do(session, "registry")) == states
    world.send(session, "again")
    assert list_states(world.do(session, "registry")) == states
    assert list_states(ThreadStore(saver).registry(session.thread_id)) == states
    kinds = saver.conn.execute("SELECT kind FROM agents ORDER BY kind").fetchall()
    assert [each for (each,) in kinds] == ["declared", "drone", "drone", *["mortal"] * 3]


def test_those_that_are_at_work_are_not_dismissed_and_those_below_the_dismissed_are(
    world: World, saver: SqliteCheckpointer
) -> None:
    ask = Call("ask_user", {"question": "which way?"})
    model = run_script(
        head={"go": [{"role": "scout", "contact_user": True}, {"role": "quick"}]},
        scout={"work": [{"role": "helper", "keep": True}, {"role": "asker", "contact_user": True}]},
        asker={"work": ask},
    )
    rules = Permissions(contact_user=True, spawn=Spawn())
    session = Session(Agent("head", model=model, permissions=rules), saver)
    [question] = world.send(session, "go").questions

    assert list_states(world.do(session, "registry")) == {
        "scout": "mortal waiting",
        "helper": "mortal done",
        "asker": "mortal waiting",
        "quick": "mortal done",
    }
    world.answer(session, {question.id: "north"})
    assert set(list_states(world.do(session, "registry")).values()) == {"mortal dismissed"}


def test_an_agent_that_the_user_has_given_is_there_before_it_is_called(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = run_script(head={"go": "done"})
    head = Agent("head", model=model, permissions=Permissions(spawn=Spawn(profiles=("guide",))))
    session = Session(head, saver, spawnable={"guide": Agent("guide")})
    world.send(session, "go")
    world.do(session, "spawn", "head", "guide")
    world.send(session, "again")

    [_, guide] = world.do(session, "registry").agents

    assert (guide.role, str(guide.kind), str(guide.state)) == ("guide", "mortal", "idle")
    assert (guide.thread_ids, guide.since) == ((), "")


@pytest.mark.parametrize("field", ["version", "levels"])
def test_an_agent_whose_specification_is_damaged_is_dismissed(
    world: World, saver: SqliteCheckpointer, field: str
) -> None:
    model = run_script(head={"go": [{"role": "kept", "keep": True}]})
    graph = Agent("head", model=model, permissions=Permissions(spawn=Spawn())).compile(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    world.invoke(graph, {"messages": "go"}, config)
    [(thread, head)] = graph.get_state(config).values["heads"].items()
    broken = {**head, "spawned": {**head["spawned"], field: "x"}}
    graph.update_state(config, {"heads": {thread: broken}})

    [_, kept] = world.do(ThreadStore(saver), "registry", "t").agents

    assert kept.name.startswith("kept-")
    assert str(kept.state) == "dismissed"


def test_names_come_from_the_theme_of_the_root_before_that_of_the_session(
    world: World, saver: SqliteCheckpointer
) -> None:
    names = {}
    for thread, own, given in (("one", "birds", "trees"), ("two", None, "trees")):
        session = Session(build_team(own), saver, thread=thread, theme=given)
        world.send(session, "go")
        names[thread] = {each.alias for each in session.registry().agents[1:]}
        assert names[thread] <= set(session.theme.names)

    assert names["one"].isdisjoint(names["two"])
