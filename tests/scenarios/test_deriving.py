"""A model says who can do what: asked at the first task that names nobody, once per database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, ToolMessage

from echelons import Agent, Session, SqliteCheckpointer
from echelons.capabilities import Capability, ModelDeriver
from echelons.delegation.policy import DelegationPolicy
from echelons.testing import Call, Reply, ScriptedModel
from echelons.tree.members import Member

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

TASK = "Where shall we have dinner?"
SAID = '{"capabilities": [{"name": "%s", "confidence": 0.8, "examples": ["%s"]}]}'


def asked(messages: Sequence[BaseMessage]) -> Reply:
    about = messages[-1].text
    return Reply(SAID % (("dinner", "book a table") if "gourmet" in about else ("songs", "a song")))


def tree(deriver: Any, prompt: str = "You are a gourmet.") -> Agent:
    find = Call("call_subordinate", {"message": TASK})
    model = ScriptedModel({"head": [find, "done"], "ann": ["At Gino's"], "bob": ["La la"]})
    return Agent(
        "head",
        model=model,
        subordinates=[Agent("ann", prompt=prompt), Agent("bob", prompt="You sing.")],
        capabilities={"plans": 0.9},
        delegation=DelegationPolicy(deriver=deriver),
    )


def answer(world: World, root: Agent, saver: SqliteCheckpointer) -> str:
    session = Session(root, saver)
    world.send(session, "go")
    told = [
        m
        for m in session.thread_store.get(session.thread_id).messages
        if isinstance(m, ToolMessage)
    ]
    return told[-1].text


def test_task_reaches_agent_that_only_the_model_recognises(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(asked)

    assert answer(world, tree(ModelDeriver(model)), saver) == "At Gino's"
    assert len(model.calls) == 2
    assert "no agent below" in answer(world, tree(None), saver)


def test_next_process_asks_only_about_changed_agents(world: World, tmp_path: Path) -> None:
    place, models = tmp_path / "t.sqlite", [ScriptedModel(asked) for _ in range(3)]
    prompts = ("You are a gourmet.", "You are a gourmet.", "You are a great gourmet.")
    for model, prompt in zip(models, prompts, strict=True):
        root = tree(ModelDeriver(model), prompt)
        assert answer(world, root, SqliteCheckpointer(place)) == "At Gino's"

    assert [len(model.calls) for model in models] == [2, 0, 1]


def test_a_tree_may_derive_in_a_way_of_its_own(world: World, saver: SqliteCheckpointer) -> None:
    def says(member: Member) -> dict[str, Capability]:
        return {"dinner" if member.name == "ann" else "songs": Capability(0.8)}

    assert answer(world, tree(says), saver) == "At Gino's"
