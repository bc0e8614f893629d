"""The registry tells of three levels what each agent is doing, in every process the same."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from echelons import Agent, Human, Session, SqliteCheckpointer, ThreadStore, subordinate
from echelons.errors import (
    CheckpointTampered,
    EchelonsError,
    LedgerDamaged,
    ThreadNotFound,
    UnknownPath,
)
from echelons.identity.lineage import derive_root_thread_id
from echelons.testing import ScriptedModel, delegate, report
from echelons.tree.agent_registry import AgentRegistry
from tests.fork_server import REPOSITORY, ForkServer
from tests.scenarios.conftest import World
from tests.scenarios.drivers.camp import team, waiting
from tests.scenarios.test_workspace_branches import fork as fork_past

ROOT = derive_root_thread_id("main")
CAMP = "head/north/camp"
DROP_INDEX = "DROP INDEX checkpoints_by_agent_thread"
"""Without it, what is no JSON can be stored as metadata."""


def list_states(registry: AgentRegistry) -> dict[str, str]:
    """Return the state of each agent by its name, with those for whom it waits."""
    return {each.name: " ".join((each.state, *each.waiting_for)) for each in registry.agents}


def read(world: World, session: Session) -> dict[str, str]:
    return list_states(world.do(session, "registry"))


def test_agents_are_idle_before_they_are_called_and_done_after(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(team({}), saver)
    before = world.do(session, "registry")
    assert list_states(before) == dict.fromkeys(("head", "north", "camp", "south"), "idle")
    assert {(each.since, each.thread_ids) for each in before.agents} == {("", ())}

    world.send(session, "go")

    after = world.do(session, "registry")
    assert list_states(after) == dict.fromkeys(("head", "north", "camp", "south"), "done")
    assert [each.path for each in after.agents] == ["head", "head/north", CAMP, "head/south"]
    assert [each.id for each in after.agents] == [each.id for each in before.agents]
    for each in after.agents:
        [own] = each.thread_ids
        assert session.thread_store.get(own).path == each.path
    assert world.do(session.thread_store, "registry", session.thread_id) == after


def test_the_tree_has_the_kinds_of_its_members(world: World, saver: SqliteCheckpointer) -> None:
    members = [Human("anna", "Approves"), subordinate(RunnableLambda(str), name="echo")]
    session = Session(Agent("head", subordinates=members), saver)

    kinds = {each.name: str(each.kind) for each in world.do(session, "registry").agents}

    assert kinds == {"head": "declared", "anna": "human", "echo": "foreign"}


def watch(path: Path, seen: list[dict[str, str]]) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return a model that looks at the registry through a connection of its own, and is done."""

    def look(_: Sequence[BaseMessage]) -> Any:
        with SqliteCheckpointer(path) as other:
            seen.append(list_states(ThreadStore(other).registry(ROOT)))
        return "seen"

    return look


def test_an_agent_works_while_a_process_holds_its_thread(world: World, tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    with Session(team({"camp": watch(tmp_path / "t.db", seen)}), tmp_path / "t.db") as session:
        world.send(session, "go")

    [during] = seen
    assert during["camp"] == "working"
    assert during["north"] == f"waiting {CAMP}"
    assert during["head"].startswith("waiting head/north")


def test_agents_wait_for_a_person_and_for_those_below(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(waiting(), saver)
    [question] = world.send(session, "go").questions

    registry = world.do(session, "registry")
    assert list_states(registry) == {
        "head": "waiting head/north",
        "north": f"waiting {CAMP}",
        "camp": "waiting the user",
        "south": "done",
    }
    assert registry.get(CAMP).question == "Which way?"
    # An answer that was stored is waited for no more.
    world.answer(session, {question.id: "left"})
    assert set(read(world, session).values()) == {"done"}


def test_agent_that_waits_for_a_person_names_the_person(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel({"head": [delegate("anna", "Buy it?"), "over"]})
    session = Session(Agent("head", model=model, subordinates=[Human("anna", "Approves")]), saver)
    world.send(session, "go")

    assert read(world, session) == {"head": "waiting head/anna", "anna": "waiting anna"}


def test_an_agent_that_needs_input_waits_for_its_superior(
    world: World, saver: SqliteCheckpointer
) -> None:
    asking = [report("needs_input", "", reason="Which way?")]
    session = Session(team({"camp": asking}), saver)
    world.send(session, "go")

    states = read(world, session)

    assert states == {
        "head": "done",
        "north": "done",
        "camp": "waiting head/north",
        "south": "done",
    }


def test_an_agent_that_cannot_has_failed(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(team({"camp": [report("unable", "", reason="lost")]}), saver)
    world.send(session, "go")

    assert read(world, session)["camp"] == "failed"
    assert read(world, session)["head"] == "done"


def test_paused_agents_are_paused_with_all_below_them(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(waiting(), saver)
    world.send(session, "go")
    world.do(session, "pause", "head/north")

    assert read(world, session) == {
        "head": "waiting head/north",
        "north": "paused",
        "camp": "paused",
        "south": "done",
    }


def test_the_registry_is_the_same_after_a_restart_and_in_another_saver_of_the_file(
    world: World, tmp_path: Path
) -> None:
    with Session(waiting(), tmp_path / "t.db") as session:
        world.send(session, "go")
        before = world.do(session, "registry")

    with Session(waiting(), tmp_path / "t.db") as session:
        assert world.do(session, "registry") == before
        assert list_states(before)["camp"] == "waiting the user"


@pytest.mark.parametrize("way", ["send", "asend"])
def test_an_agent_whose_process_was_killed_does_not_work(
    tmp_path: Path, way: str, fork_server: ForkServer
) -> None:
    driver = "tests.scenarios.drivers.dying_camp"
    ended = fork_server.run("-m", driver, str(tmp_path / "t.db"), way, cwd=REPOSITORY)
    assert ended.returncode == -signal.SIGKILL

    with Session(team({}), tmp_path / "t.db") as session:
        states = list_states(session.registry())
        assert states["camp"] == "idle"
        assert states["north"] == f"waiting {CAMP}"
        session.resume().result()
        assert set(list_states(session.registry()).values()) == {"done"}


def forked() -> Agent:
    """Return a team whose north calls camp when its task is to camp."""

    def lead(messages: Sequence[BaseMessage]) -> Any:
        if isinstance(messages[-1], ToolMessage):
            return "done"
        return delegate("north", str(messages[-1].text))

    def go(messages: Sequence[BaseMessage]) -> Any:
        if isinstance(messages[-1], ToolMessage) or "camp" not in str(messages[-1].text):
            return "north is done"
        return delegate("camp", "go")

    return team({"head": lead, "north": go})


def test_a_fork_of_the_past_has_the_agents_of_then(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(forked(), saver)
    world.send(session, "walk")
    after_first = world.do(session, "registry")
    assert list_states(after_first)["camp"] == "idle"
    world.send(session, "camp")
    assert list_states(world.do(session, "registry"))["camp"] == "done"

    fork_past(world, session, 0)

    # North's thread has gone on in the meantime: the fork does not have that.
    assert world.do(session, "registry") == after_first
    world.send(session, "camp")
    assert read(world, session)["camp"] == "done"


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
@pytest.mark.parametrize("theirs", [False, True])
def test_the_trace_of_a_fork_has_the_threads_as_they_were_then(
    world: World, saver: SqliteCheckpointer, theirs: bool
) -> None:
    session = Session(forked(), InMemorySaver() if theirs else saver)
    world.send(session, "walk")
    before = world.do(session, "trace")
    world.send(session, "camp")
    whole = world.do(session, "trace")
    assert [each.agent for each in whole.walk()] == ["head", "north", "camp"]

    fork_past(world, session, 0)

    assert str(world.do(session, "trace")) == str(before)
    world.send(session, "camp")
    again = [each.agent for each in world.do(session, "trace").walk()]
    assert again == ["head", "north", "camp"]


@pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")
def test_any_saver_answers_the_same(world: World, saver: SqliteCheckpointer) -> None:
    ours, theirs = (Session(forked(), each) for each in (saver, InMemorySaver()))
    for session in (ours, theirs):
        world.send(session, "walk")
        world.send(session, "camp")
        fork_past(world, session, 0)

    def compare(session: Session) -> list[Any]:
        agents = world.do(session, "registry").agents
        assert [each.since != "" for each in agents] == [each.thread_ids != () for each in agents]
        return [(each.path, each.id, each.state, len(each.thread_ids)) for each in agents]

    assert compare(ours) == compare(theirs)


def test_an_agent_with_two_conversations_has_two_threads(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [delegate("north", "one", reset=True), delegate("north", "two", reset=True)]
    model = ScriptedModel({"head": [calls, "over"], "north": ["done"]})
    session = Session(Agent("head", model=model, subordinates=[Agent("north")]), saver)
    world.send(session, "go")

    [_, north] = world.do(session, "registry").agents

    assert len(set(north.thread_ids)) == 2


def test_a_name_that_the_tree_does_not_have_is_no_agent(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(team({"head": [delegate("nobody", "go"), "over"]}), saver)
    world.send(session, "go")

    assert set(read(world, session)) == {"head", "north", "camp", "south"}


def test_an_agent_that_the_tree_no_longer_has_is_listed_still(
    world: World, saver: SqliteCheckpointer
) -> None:
    world.send(Session(team({}), saver), "go")
    smaller = Session(Agent("head", subordinates=[Agent("south")]), saver)

    assert [each.path for each in world.do(smaller, "registry").agents] == [
        "head",
        "head/south",
        "head/north",
        CAMP,
    ]


def test_the_registry_of_an_unknown_thread_or_agent_is_refused(saver: SqliteCheckpointer) -> None:
    with pytest.raises(ThreadNotFound):
        ThreadStore(saver).registry("nobody")
    registry = Session(team({}), saver).registry()
    with pytest.raises(UnknownPath, match="head/north/camp"):
        registry.get("nobody")


def test_a_session_draws_its_agents_with_their_states(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(waiting(), saver)
    world.send(session, "go")

    drawn = world.do(session, "draw")

    assert str(drawn).splitlines() == [
        "head: waiting for head/north",
        f"├── north: waiting for {CAMP}",
        "│   └── camp: waiting for the user: Which way?",
        "└── south: done",
    ]
    assert re.findall(r":::(\w+)", drawn.mermaid) == ["waiting"] * 3 + ["done"]


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (f"{DROP_INDEX}; UPDATE checkpoints SET metadata = 'x'", CheckpointTampered),
        ("UPDATE checkpoints SET metadata = '{\"agent_thread_id\": 5}'", CheckpointTampered),
        ("UPDATE checkpoints SET checkpoint = x'00'", CheckpointTampered),
        ("UPDATE ledger_leases SET epoch = 'x'", LedgerDamaged),
    ],
)
def test_damaged_rows_are_an_error_of_their_name(
    tmp_path: Path, world: World, damage: str, error: type[EchelonsError]
) -> None:
    with Session(team({}), tmp_path / "t.db") as session:
        world.send(session, "go")
    with SqliteCheckpointer(tmp_path / "t.db") as saver:
        with saver.cursor() as cursor:
            for statement in damage.split(";"):
                cursor.execute(statement)
        with pytest.raises(error):
            world.do(ThreadStore(saver), "registry", ROOT)


def test_an_addressed_agent_is_called_through_its_superiors(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(team({"head": lambda _: "over", "north": lambda _: "done"}), saver)
    world.send(session, "go", to=CAMP)

    assert read(world, session) == {
        "head": "done",
        "north": "done",
        "camp": "done",
        "south": "idle",
    }


def test_a_pruned_thread_has_the_same_agents(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(forked(), saver)
    world.send(session, "camp")
    world.send(session, "walk")
    before = world.do(session, "registry")
    assert list_states(before)["camp"] == "done"

    saver.prune([session.thread_id])

    assert world.do(session, "registry") == before


def test_a_tree_in_another_graph_is_read_by_the_thread_of_that_graph(world: World) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("tree", waiting().compile())
    graph.add_edge(START, "tree")
    config: Any = {"configurable": {"thread_id": "host"}}
    with SqliteCheckpointer(":memory:") as saver:
        host = graph.compile(checkpointer=saver)
        world.invoke(host, {"messages": "go"}, config)
        asking = world.do(ThreadStore(saver), "registry", "host")
        world.invoke(host, Command(resume="left"), config)
        ended = world.do(ThreadStore(saver), "registry", "host")

    # No session holds the thread of a graph.
    assert list_states(asking) == {
        "head": "waiting head/north",
        "north": f"waiting {CAMP}",
        "camp": "waiting the user",
        "south": "done",
    }
    assert set(list_states(ended).values()) == {"done"}
    assert [each.path for each in ended.agents] == ["head", "head/north", CAMP, "head/south"]
