"""A superior makes two that write to each other and share notes; it is dismissed in the middle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from threading import Barrier
from typing import Any

from langchain_core.messages import BaseMessage

from echelons import Agent, Permissions, Session, Spawn
from echelons.testing import Call, ScriptedModel, delegate
from echelons.tree.agent_registry import AgentState
from echelons.workspace_tools import file_tools, note_tools
from tests.error_codes import raises_code
from tests.scenarios.conftest import World
from tests.told_lines import get_last

ROLES = ("water", "food")
LEAD = "head/lead"


def build(both_wrote: Barrier) -> Agent:
    """Return a head whose lead makes two agents, each of which waits for the other's message."""

    def wait() -> str:
        """Wait until the other one has written, too."""
        both_wrote.wait(60)
        return "both wrote"

    def work(role: str) -> Any:
        def step(messages: Sequence[BaseMessage]) -> Any:
            done = [str(each.name) for each in messages if each.type == "tool"]
            if not done:
                told = "\n".join(str(each.text) for each in messages)
                [beside] = re.findall(r"agents beside you: (\S+)$", told, re.MULTILINE)
                return [
                    Call("write_note", {"name": role, "text": f"{role} is north"}),
                    Call("write_file", {"path": f"{role}.md", "text": f"{role}\n"}),
                    Call("send_message", {"to": beside, "message": f"I look for {role}"}),
                ]
            if "wait" not in done:
                return Call("wait")
            return Call("ask_user", {"question": f"Is {role} enough?"})

        return step

    def lead(messages: Sequence[BaseMessage]) -> Any:
        made = {"message": "look", "contact_user": True}
        return [Call("spawn_subordinate", {"role": each, **made}) for each in ROLES]

    def head(messages: Sequence[BaseMessage]) -> Any:
        last = get_last(messages)
        return delegate("lead", "look") if last.type == "human" else f"read: {last.text}"

    tools = [*file_tools(), *note_tools(), wait]
    names = tuple(str(getattr(each, "name", "wait")) for each in tools)
    rules = Permissions(contact_user=True, spawn=Spawn(tools=names))
    scripts = {"head": head, "lead": lead, **{each: work(each) for each in ROLES}}
    leader = Agent("lead", tools=tools, permissions=rules)
    return Agent("head", model=ScriptedModel(scripts), subordinates=[leader])


def test_a_branch_that_talks_is_dismissed_with_its_superior_and_its_changes_stay(
    world: World, tmp_path: Path
) -> None:
    folder, database = tmp_path / "work", tmp_path / "t.sqlite"
    folder.mkdir()
    with Session(build(Barrier(2)), database, thread="t", workspace=folder) as session:
        questions = world.send(session, "go").questions
    assert sorted(each.value for each in questions) == ["Is food enough?", "Is water enough?"]

    with Session(build(Barrier(2)), database, thread="t", workspace=folder) as session:
        traces = {each.agent.partition("-")[0]: each for each in session.trace().walk()}
        # Each has read the other's message, though they were made at once.
        for own, other in (ROLES, ROLES[::-1]):
            [mail] = traces[own].mail
            assert (mail.kind, mail.text) == ("message", f"I look for {other}")
        made = [each.path for each in world.do(session, "registry").subtree(LEAD)[1:]]

        done = world.do(session, "dismiss", LEAD)

        assert (done.agents, done.heir) == ((LEAD, *made), "head")
        assert world.do(session, "inbox") == []
        text = world.resume(session).text
        assert text.startswith("read: [unable] dismissed: head/lead")
        # Nobody is left without a superior, and nobody below one that is gone works.
        registry = world.do(session, "registry")
        assert {each.state for each in registry.subtree(LEAD)} == {AgentState.DISMISSED}
        assert {each.superior_id for each in registry.agents[1:]} <= {
            each.id for each in registry.agents
        }
        for path in made:
            with raises_code("agent_dismissed"):
                world.do(session, "steer", path, "Go on")
        # What they have proposed is there, for whoever is left.
        for path in made:
            [change] = world.do(session, "changes", path)
            assert world.do(session, "merge", path).merged == (change.path,)
    assert sorted(each.name for each in folder.iterdir()) == ["food.md", "water.md"]
