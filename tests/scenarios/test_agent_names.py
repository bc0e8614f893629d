"""Everything that takes an agent takes its path, its id and its name for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.types import interrupt
from typer.testing import CliRunner

from echelons import Agent, AgentPath, Permissions, Session, Spawn
from echelons.cli.app import app
from echelons.errors import UnknownPath
from echelons.testing import Call, ScriptedModel
from echelons.workspace_tools import file_tools

NAMES = ["path", "id", "alias"]


@tool
def ask() -> str:
    """Ask the human."""
    return f"heard {interrupt('Which way?')}"


def build_team() -> Agent:
    """Return a head that makes a scout, which proposes a change and then asks."""
    tools = ("ask", "write_file")
    spawn = {"role": "Scout", "message": "go", "keep": True, "tools": list(tools)}
    edit = Call("write_file", {"path": "a.txt", "text": "b"})
    script: dict[str, Any] = {
        "head": [Call("spawn_subordinate", spawn), "over"],
        "scout": [edit, Call("ask"), "seen"],
    }
    every = [ask, *file_tools()]
    return Agent(
        "head",
        model=ScriptedModel(script),
        tools=every,
        permissions=Permissions(spawn=Spawn(tools=tuple(each.name for each in every))),
    )


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    folder = tmp_path / "files"
    folder.mkdir()
    with Session(build_team(), tmp_path / "team.db", workspace=folder) as session:
        session.send("go").result()
        yield session


def name(session: Session, form: str) -> str:
    """Return the scout by one of its names."""
    [scout] = [agent for agent in session.registry().agents if agent.level == 1]
    assert isinstance(scout.path, AgentPath)
    return str(getattr(scout, form))


def pause_and_resume(session: Session, agent: str) -> Any:
    session.pause(agent)
    session.answer(session.inbox()[0].id, "left").result()
    return session.resume(agent).result().text


def merge(session: Session, agent: str) -> Any:
    return session.merge(agent).merged


# What is done with the agent, and what comes of it; a function is given the agent's path.
CALLS: dict[str, tuple[Callable[[Session, str], Any], Any]] = {
    "stop": (lambda session, agent: session.stop(agent), lambda path: path),
    "pause": (lambda session, agent: session.pause(agent), lambda path: path),
    "resume": (pause_and_resume, "over"),
    "steer": (lambda session, agent: session.steer(agent, "go on"), lambda path: path),
    "send_message": (lambda session, agent: session.send_message(agent, "x"), lambda path: path),
    "usage": (lambda session, agent: session.usage(agent).total.model_calls, 2),
    "changes": (
        lambda session, agent: [file.agent for file in session.changes(agent)],
        lambda path: [path],
    ),
    "merge": (merge, ("a.txt",)),
    "discard": (lambda session, agent: session.discard(agent), ["a.txt"]),
    "dismiss": (lambda session, agent: session.dismiss(agent).dismissal.path, lambda path: path),
    "tree": (lambda session, agent: session.registry().subtree(agent)[0].path, lambda path: path),
}


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize("call", CALLS)
def test_every_call_takes_every_name(session: Session, call: str, form: str) -> None:
    path, (do, outcome) = name(session, "path"), CALLS[call]

    assert do(session, name(session, form)) == (outcome(path) if callable(outcome) else outcome)


@pytest.mark.parametrize("form", NAMES)
def test_task_reaches_a_kept_spawned_agent(session: Session, form: str) -> None:
    session.answer(session.inbox()[0].id, "left").result()
    agent = name(session, form)
    before = session.usage(name(session, "path")).total.model_calls

    result = session.send("more", to=agent).result()

    assert session.usage(name(session, "path")).total.model_calls > before
    assert result.questions, "it works on the task, and asks"


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "stop": lambda agent: ["stop", agent],
    "pause": lambda agent: ["pause", agent],
    "steer": lambda agent: ["steer", agent, "go on"],
    "message": lambda agent: ["message", agent, "x"],
    "usage": lambda agent: ["usage", agent],
    "changes": lambda agent: ["changes", "main", agent],
    "merge": lambda agent: ["merge", "main", agent],
    "discard": lambda agent: ["discard", "main", agent, "--yes"],
    "dismiss": lambda agent: ["dismiss", agent, "--yes"],
    "tree": lambda agent: ["tree", agent],
}


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_every_name(
    session: Session, tmp_path: Path, command: str, form: str
) -> None:
    path, agent = name(session, "path"), name(session, form)
    session.close()

    done = CliRunner().invoke(app, [*COMMANDS[command](agent), "--db", str(tmp_path / "team.db")])

    assert done.exit_code == 0, done.output
    assert command in ("usage", "changes", "merge", "discard", "tree") or path in done.output


@pytest.mark.parametrize("call", sorted(CALLS.keys() - {"tree", "resume"}))
def test_unknown_agent_is_refused_with_the_nearest(session: Session, call: str) -> None:
    path = name(session, "path")

    with pytest.raises(UnknownPath, match=f"the nearest: {path}"):
        CALLS[call][0](session, path.replace("scout", "scuot"))


def test_path_of_a_question_is_an_agent_path(session: Session) -> None:
    [question] = session.inbox()

    assert isinstance(question.path, AgentPath)
    assert question.path.parts == ("head", question.path.name)
    assert question.path == question.path.parent / question.path.name
    with pytest.raises(TypeError, match=r"\.parts"):
        question.path[0]
    with pytest.raises(TypeError, match=r"\.parts"):
        list(question.path)
    assert session.stop(question.path) == question.path
