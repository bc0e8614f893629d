"""Spawned agents get names for people, one an agent, which the registry knows in any process."""

from __future__ import annotations

from typing import Any

from echelons import Agent, Permissions, Session, Spawn, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel
from echelons.tree.agent_registry import AgentKind, AgentState
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
    spawned = [each for each in found if each.kind is AgentKind.SPAWNED]
    assert len({each.alias for each in spawned}) == len(spawned) == 6
    assert [(each.path, each.alias) for each in again] == [
        (each.path, each.alias) for each in found[:4]
    ]
    assert {each.state for each in spawned} == {AgentState.DONE}
    assert not found[0].alias


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
