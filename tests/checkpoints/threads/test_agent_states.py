"""The state of an agent is the first that fits; finding those of all is linear in their number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import pytest

from benchmarks.registry import build_wide_tree
from echelons import Session, SqliteCheckpointer
from echelons.checkpoints.coordination.orders import ControlOrders
from echelons.checkpoints.threads.agent_states import TreeSnapshot
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.threads.trace import LinkState, Trace, TracedRequest
from echelons.delegation.request import DelegationRequest, Status
from echelons.guards.dismissals import Dismissal, Dismissals
from echelons.identity.lineage import derive_agent_id
from echelons.tree.agent_path import AgentPath
from echelons.tree.agent_registry import AgentKind, AgentRegistry
from tests.proof import sample


def build_trace(agent: str, status: Status | None, *below: Trace, **changes: Any) -> Trace:
    """Return a thread whose request has come to a status; `None` while it is open."""
    sent = DelegationRequest(
        id="r", origin="x", current=agent, task="go", path=AgentPath(("x", agent))
    )
    request = TracedRequest("call", sent, None, status, "")
    given = Trace(f"thread of {agent}", agent, "above", LinkState.OK, (request,), (), below)
    return replace(given, **changes)


def build_snapshot(*below: Trace, **changes: Any) -> TreeSnapshot:
    """Return a root at work with threads below it."""
    root = Trace("root", "head", "", LinkState.OK, (), (), below)
    given = TreeSnapshot("root", "head", root, finished=False, running=True)
    return replace(given, **changes)


def list_states(registry: AgentRegistry) -> dict[str, str]:
    return {each.path: str(each.state) for each in registry.agents}


def ask(*path: str, addressee: str = "") -> Question:
    return Question("q", "Which\n way?", AgentPath(path), "t", "", addressee=addressee)


def test_a_dismissed_agent_is_dismissed_with_all_below_it_whatever_they_do() -> None:
    inner = build_trace("camp", None)
    snapshot = build_snapshot(
        build_trace("north", None, inner),
        build_trace("northern", None),
        orders=ControlOrders(paused=("head/north",)),
        questions=[ask("head", "north", "camp")],
        dismissals=Dismissals([Dismissal("head/north")]),
    )

    states = list_states(snapshot.build_registry())

    assert states == {
        "head": "waiting",
        "head/north": "dismissed",
        "head/north/camp": "dismissed",
        "head/northern": "working",
    }


def test_finishing_agent_is_dismissed_afterwards() -> None:
    dismissals = Dismissals([Dismissal("head/north", graceful=True)])
    inner = build_trace("camp", Status.FULFILLED)
    snapshot = build_snapshot(build_trace("north", None, inner), dismissals=dismissals)

    assert list_states(snapshot.build_registry()) == {
        "head": "waiting",
        "head/north": "working",
        "head/north/camp": "dismissed",
    }
    done = build_snapshot(build_trace("north", Status.FULFILLED, inner), dismissals=dismissals)
    assert list_states(done.build_registry())["head/north"] == "dismissed"


def test_a_pause_comes_before_a_question_and_a_question_before_work() -> None:
    camp = build_trace("camp", None)
    asked = build_snapshot(camp, questions=[ask("head", "camp", addressee="anna")])
    paused = replace(asked, orders=ControlOrders(paused=("head/camp",)))

    [_, waiting] = asked.build_registry().agents
    assert (waiting.state, waiting.waiting_for) == ("waiting", ("anna",))
    assert waiting.question == "Which way?"
    assert list_states(paused.build_registry())["head/camp"] == "paused"
    # Whose request has been answered is held by no pause.
    done = build_snapshot(
        build_trace("camp", Status.FULFILLED), orders=ControlOrders(paused=("head/camp",))
    )
    assert list_states(done.build_registry())["head/camp"] == "done"


@pytest.mark.parametrize(
    ("status", "running", "state"),
    [
        (None, True, "working"),
        (None, False, "idle"),
        (Status.UNABLE, True, "failed"),
        (Status.FULFILLED, True, "done"),
        (Status.PARTIAL, False, "done"),
        (Status.NEEDS_INPUT, False, "waiting"),
    ],
)
def test_a_request_gives_its_agent_a_state(
    status: Status | None, running: bool, state: str
) -> None:
    snapshot = build_snapshot(build_trace("camp", status), running=running)

    assert list_states(snapshot.build_registry())["head/camp"] == state


def test_nothing_is_open_in_a_turn_that_has_ended() -> None:
    snapshot = build_snapshot(build_trace("camp", None), finished=True)

    assert set(list_states(snapshot.build_registry()).values()) == {"done"}


@pytest.mark.parametrize("state", [LinkState.REFUSED, LinkState.BROKEN])
def test_a_call_that_led_to_no_thread_makes_no_agent(state: LinkState) -> None:
    snapshot = build_snapshot(
        build_trace("camp", Status.UNABLE, state=state),
        build_trace("no name!", None, state=LinkState.NOT_STARTED),
    )

    assert list_states(snapshot.build_registry({"head": AgentKind.DECLARED})) == {"head": "waiting"}


def test_an_agent_of_two_threads_began_with_the_first_and_works_in_either() -> None:
    first = build_trace("camp", Status.FULFILLED, thread_id="a")
    second = build_trace("camp", None, thread_id="b")
    snapshot = build_snapshot(first, second, begun={"a": "2031", "b": "2030"})

    [_, camp] = snapshot.build_registry().agents

    assert (camp.thread_ids, camp.since, camp.state) == (("a", "b"), "2030", "working")


def test_an_id_is_that_of_the_thread_and_the_path() -> None:
    ids = {
        derive_agent_id(thread, path)
        for thread in ("one", "two")
        for path in ("head", "head/north")
    }

    assert len(ids) == 4
    assert derive_agent_id("one", "head") in ids


def test_an_embedded_root_has_no_superior() -> None:
    root = Trace("root", "head", "", LinkState.OK, (), (), (build_trace("camp", None),))
    registry = replace(build_snapshot(), trace=root, root_path="graph/head").build_registry()

    assert [each.path for each in registry.agents] == ["graph/head", "graph/head/camp"]
    assert registry.agents[0].superior_id == ""
    assert registry.agents[1].superior_id == registry.agents[0].id


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions Python calls."""
    counted = 0

    def count(_frame: Any, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def test_reading_and_drawing_are_linear_in_the_number_of_agents() -> None:
    counts: list[dict[str, int]] = []
    for number in sample((40, 80), (500, 1000)):
        with SqliteCheckpointer(":memory:") as saver:
            session = Session(build_wide_tree(number, width=10), saver)
            session.send("go").result()
            registry = session.registry()
            assert len(registry.agents) == 1 + number // 10 + number
            works: dict[str, Callable[[], object]] = {
                "registry": session.registry,
                "draw": registry.draw,
                "collapsed": partial(registry.draw, depth=1),
                "mermaid": partial(getattr, session.draw(), "mermaid"),
                "subtrees": partial(
                    list, map(registry.subtree, [each.path for each in registry.agents])
                ),
                "siblings": partial(registry.siblings, "head/team-0/hand-0-1"),
            }
            counts.append({name: count_calls(work) for name, work in works.items()})

    small, large = counts
    assert all(large[name] <= 2.1 * small[name] for name in small), counts
    assert all(count > 0 for count in chain(small.values(), large.values()))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\nb", "a b"),
        ({"question": "Book it?", "people": 2}, "Book it?"),
        ({"people": 2}, '{"people": 2}'),
        ({"type": "tool_approval", "name": "mail", "args": {}}, "may it call mail?"),
        (None, "null"),
        ("word " * 100, "word " * 39 + "word…"),
    ],
)
def test_a_question_of_any_kind_is_shown_in_a_line(value: Any, shown: str) -> None:
    question = Question("q", value, AgentPath("head/camp"), "t", "")
    snapshot = build_snapshot(build_trace("camp", None), questions=[question])

    assert snapshot.build_registry().get("head/camp").question == shown
