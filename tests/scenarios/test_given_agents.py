"""`Session.spawn`: the user gives an agent a subordinate, whoever is at work on the thread."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from echelons import Agent, Permissions, Session, Spawn, SqliteCheckpointer
from echelons.errors import ControlError, SpawnRefused, UnknownPath
from echelons.testing import Call, ScriptedModel
from tests.fork_server import REPOSITORY, ForkServer
from tests.scenarios.conftest import World
from tests.scenarios.drivers.giving import open_session
from tests.told_lines import get_last, list_spawned

DRIVER = "tests.scenarios.drivers.giving"


def list_given(session: Session) -> list[str]:
    """Return the names of the agents that were made, without their digits."""
    made = [each for each in session.registry().agents if each.role]
    return [re.sub(r"-[0-9a-f]{8}$", "", each.name) for each in made]


def test_one_that_is_given_is_there_at_the_next_model_call_and_in_later_turns_and_processes(
    world: World, tmp_path: Path
) -> None:
    with open_session(tmp_path / "t.db") as session:
        assert world.do(session, "spawn", "head", "guide") == "head"
        assert list_given(session) == []
        first = world.send(session, "lead me").text
        name = session.registry().agents[-1].path
    with open_session(tmp_path / "t.db") as session:
        second = world.send(session, "lead me again").text
        after = session.registry()

    assert re.match(r"read: \d messages", first)
    assert after.get(name).role == "guide"
    assert str(after.get(name).state) == "done"
    # It remembers.
    assert int(second.split()[1]) > int(first.split()[1])


def test_one_that_another_process_gives_reaches_its_superior_at_work(
    world: World, tmp_path: Path, fork_server: ForkServer
) -> None:
    database, given = tmp_path / "t.db", []

    def give() -> None:
        ended = fork_server.run("-m", DRIVER, str(database), cwd=REPOSITORY)
        given.append((ended.returncode, ended.stdout))

    with open_session(database, give) as session:
        result = world.send(session, "go")
        names = list_given(session)

    assert given == [(0, "head\n")]
    # It is told of it at its next model call, in the same turn.
    assert re.match(r"read: \d messages", result.text)
    assert names == ["guide"]


def test_two_that_are_given_are_two(world: World, saver: SqliteCheckpointer) -> None:
    session = open_session(saver)
    for _ in range(2):
        world.do(session, "spawn", "head", "guide")
    world.send(session, "lead me")

    assert list_given(session) == ["guide", "guide"]
    assert len({each.path for each in session.registry().agents}) == 4


@pytest.mark.parametrize(
    ("path", "name", "error", "words"),
    [
        ("head", "nobody", SpawnRefused, r"no agent 'nobody' can be spawned \(spawnable: guide\)"),
        ("head", ["guide"], SpawnRefused, "no agent"),
        ("head", None, SpawnRefused, "no agent"),
        ("head/clerk", "guide", SpawnRefused, "give it Permissions"),
        ("head/nobody", "guide", UnknownPath, "head/nobody"),
        ("guide", "guide", UnknownPath, "guide"),
        (5, "guide", UnknownPath, "5"),
    ],
)
def test_what_cannot_be_given_is_refused_by_name(
    world: World,
    saver: SqliteCheckpointer,
    path: Any,
    name: Any,
    error: type[Exception],
    words: str,
) -> None:
    session = open_session(saver)
    world.send(session, "hello")

    with pytest.raises(error, match=words):
        world.do(session, "spawn", path, name)

    world.send(session, "lead me")
    assert list_given(session) == []


def test_dismissed_agent_gets_no_subordinates(world: World, saver: SqliteCheckpointer) -> None:
    session = open_session(saver)
    world.send(session, "hello")
    world.do(session, "dismiss", "head")

    with pytest.raises(ControlError, match="head"):
        world.do(session, "spawn", "head", "guide")


@pytest.mark.parametrize(("kind", "levels"), [("drone", 2), ("mortal", 1)])
def test_spawned_agent_without_right_to_subordinates_gets_none(
    world: World, saver: SqliteCheckpointer, kind: str, levels: int
) -> None:
    ask = Call("ask_superior", {"question": "which way?"})
    spawn = Call("spawn_subordinate", {"role": "scout", "message": "look", "kind": kind})
    model = ScriptedModel({"head": [spawn, "over"], "scout": [ask]})
    rules = Permissions(spawn=Spawn(profiles=("guide",), levels=levels))
    head = Agent("head", model=model, permissions=rules)
    session = Session(head, saver, spawnable={"guide": Agent("guide")})
    world.send(session, "go")
    [_, scout] = session.registry().agents

    with pytest.raises(SpawnRefused, match="a drone, or on the last level"):
        world.do(session, "spawn", scout.path, "guide")


def test_a_spawned_agent_that_may_make_some_is_given_one(
    world: World, saver: SqliteCheckpointer
) -> None:
    def scout(messages: Any) -> Any:
        made = [each for each in list_spawned(messages) if each.startswith("guide")]
        if made and get_last(messages).type == "human":
            return Call("call_subordinate", {"subordinate": made[0], "message": "lead"})
        return f"said: {get_last(messages).text}"

    def lead(messages: Any) -> Any:
        if get_last(messages).type == "tool":
            return f"read: {get_last(messages).text}"
        if messages[-1].text == "go":
            given = {"role": "scout", "message": "look", "keep": True}
            return Call("spawn_subordinate", given)
        [name] = list_spawned(messages)
        return Call("call_subordinate", {"subordinate": name, "message": "look again"})

    model = ScriptedModel({"head": lead, "scout": scout, "guide": ["this way"]})
    rules = Permissions(spawn=Spawn(profiles=("guide",), levels=2))
    head = Agent("head", model=model, permissions=rules)
    session = Session(head, saver, spawnable={"guide": Agent("guide")})
    world.send(session, "go")
    [_, made] = session.registry().agents

    world.do(session, "spawn", made.path, "guide")

    assert "said: this way" in world.send(session, "again").text
    assert list_given(session) == ["scout", "guide"]
