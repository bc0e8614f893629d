"""A task that names nobody finds its way down the tree, and round those who cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.capabilities import Capability
from echelons.delegation.request import DelegationResponse
from echelons.testing import Call, Reply, ScriptedModel, delegate, delegate_many, report

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def find(task: str) -> Call:
    """Return a call that names nobody."""
    return Call("call_subordinate", {"message": task})


def chain(model: ScriptedModel, *last: Agent) -> Agent:
    """Return head → a → b → c, with some agents below c."""
    c = Agent("c", subordinates=list(last), capabilities={"cooking": 0.1})
    b = Agent("b", subordinates=[c], capabilities={"cooking": 0.1})
    a = Agent("a", subordinates=[b], capabilities={"cooking": 0.1})
    other = Agent("other", capabilities={"singing": 0.9})
    return Agent("head", model=model, subordinates=[a, other])


def answer_of(session: Session) -> DelegationResponse:
    """Return the response to the root's last call."""
    root = session.thread_store.get(session.thread_id)
    answers = [m for m in root.messages if isinstance(m, ToolMessage)]
    return DelegationResponse.load(answers[-1].artifact)


def callers(model: ScriptedModel) -> list[str]:
    return [str(call.agent) for call in model.calls]


def test_task_goes_down_four_levels_to_the_only_candidate(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel({"head": [find("Repair the bicycle"), "done"], "d": ["as new"]})
    mechanic = Agent("d", capabilities={"repair bicycle": 0.9})
    session = Session(chain(model, mechanic), saver)

    result = world.send(session, "go")

    answer = answer_of(session)
    assert result.text == "done"
    assert (answer.status, answer.result, answer.agent) == ("fulfilled", "as new", "d")
    assert answer.path == "head/a/b/c/d"
    assert callers(model) == ["head", "d", "head"], "no model call in between"
    assert answer.usage.model_calls == 1


@pytest.mark.parametrize(
    ("task", "who", "path"),
    [
        ("Repair the bicycle", "d", ("head", "a", "b", "c", "d")),
        # For what nobody is made, the only subordinate is asked.
        ("Sing a song", "a", ("head", "a")),
    ],
)
def test_a_task_goes_down_a_chain_that_has_no_other_branch(
    task: str, who: str, path: tuple[str, ...], world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel({"head": [find(task), "done"], "a": ["la"], "d": ["as new"]})
    c = Agent("c", subordinates=[Agent("d", capabilities={"repair bicycle": 0.9})])
    a = Agent("a", subordinates=[Agent("b", subordinates=[c])])
    session = Session(Agent("head", model=model, subordinates=[a]), saver)

    world.send(session, "go")

    assert (answer_of(session).agent, answer_of(session).path.parts) == (who, path)
    assert callers(model) == ["head", who, "head"], "no model call in between"
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))


def test_the_levels_between_keep_threads_that_can_be_read_and_traced(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel({"head": [find("Repair the bicycle"), "done"], "d": ["as new"]})
    session = Session(chain(model, Agent("d", capabilities={"repair bicycle": 0.9})), saver)
    world.send(session, "go")

    trace = session.trace()
    assert [each.agent for each in trace.walk()] == ["head", "a", "b", "c", "d"]
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))
    middle = next(each for each in trace.walk() if each.agent == "b")
    said = [(m.type, m.text) for m in session.thread_store.get(middle.thread_id).messages]
    assert said == [
        ("human", "Repair the bicycle"),
        ("ai", ""),
        ("tool", "as new"),
        ("ai", "as new"),
    ]


def test_when_the_best_cannot_the_next_best_in_another_branch_is_asked(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {
            "head": [find("Repair the bicycle"), "done"],
            "d": [report("unable", "", reason="no tools")],
            "d2": ["as new"],
        }
    )
    a = Agent("a", subordinates=[Agent("d", capabilities={"repair bicycle": 0.9})])
    b = Agent("b", subordinates=[Agent("d2", capabilities={"repair bicycle": 0.8})])
    session = Session(Agent("head", model=model, subordinates=[a, b]), saver)

    result = world.send(session, "go")

    answer = answer_of(session)
    assert result.text == "done"
    assert (answer.agent, answer.path) == ("d2", "head/b/d2")
    assert callers(model) == ["head", "d", "d2", "head"]
    assert [(each.agent, each.status) for each in answer.subordinate_responses] == [
        ("d", "unable"),
        ("d2", "fulfilled"),
    ]
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))
    assert [each.agent for each in session.trace().walk()] == ["head", "a", "d", "b", "d2"]


def test_each_request_keeps_why_its_agent_was_asked(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel(
        {
            "head": [find("Repair the bicycle"), delegate("b", "Sing"), "done"],
            "d": [report("unable", "", reason="no tools")],
            "d2": ["as new"],
            "b": ["la"],
        }
    )
    a = Agent("a", subordinates=[Agent("d", capabilities={"repair bicycle": 0.9})])
    b = Agent("b", subordinates=[Agent("d2", capabilities={"repair bicycle": 0.8})])
    session = Session(Agent("head", model=model, subordinates=[a, b]), saver)

    world.send(session, "go")

    trace = session.trace()
    why = {
        (each.agent, asked.sent.task): asked.sent.why
        for each in trace.walk()
        for asked in each.requests
    }
    for agent in ("a", "d"):
        assert why[agent, "Repair the bicycle"].endswith("; words: bicycle, repair"), agent
    # The next best has a reason of its own.
    assert why["d2", "Repair the bicycle"].startswith("0.")
    assert why["d2", "Repair the bicycle"] != why["d", "Repair the bicycle"]
    assert why["b", "Sing"] == "", "its superior named it"
    assert "why: d: 0." in trace.text


def test_one_answer_says_why_no_branch_can(world: World, saver: SqliteCheckpointer) -> None:
    model = ScriptedModel(
        {
            "head": [find("Repair the bicycle"), "sorry"],
            "d": [report("unable", "", reason="no tools")],
            "e": [ConnectionError("line is dead")],
        }
    )
    a = Agent("a", subordinates=[Agent("d", capabilities={"repair bicycle": 0.9})])
    e = Agent("e", capabilities={"repair bicycle": 0.5})
    session = Session(Agent("head", model=model, subordinates=[a, e]), saver)

    world.send(session, "go")

    answer = answer_of(session)
    assert answer.status == "unable"
    assert "a/d: no tools" in answer.reason
    assert "e: ConnectionError: line is dead" in answer.reason
    assert [each.agent for each in answer.subordinate_responses] == ["d", "e"]
    assert all(link.holds for link in session.thread_store.verify(session.thread_id))


@pytest.mark.parametrize("task", ["Sing", "What is the weather like on the moon?"])
def test_task_without_candidate_is_answered_at_once(
    world: World, saver: SqliteCheckpointer, task: str
) -> None:
    model = ScriptedModel({"head": [find(task), "sorry"]})
    below = [Agent(name, capabilities={name: 0.9}) for name in ("flights", "hotels")]
    session = Session(Agent("head", model=model, subordinates=below), saver)

    assert world.send(session, "go").text == "sorry"

    answer = answer_of(session)
    assert (answer.status, answer.agent) == ("unable", "head")
    assert answer.reason.startswith("no_candidate: ")
    assert callers(model) == ["head", "head"]


def test_a_question_of_a_forwarded_request_is_answered_where_it_was_asked(
    world: World, saver: SqliteCheckpointer
) -> None:
    def ask() -> str:
        """Ask a human."""
        return str(interrupt("Which wheel?"))

    model = ScriptedModel(
        {"head": [find("Repair the bicycle"), "done"], "d": [Call("ask"), "as new"]}
    )
    mechanic = Agent("d", tools=[ask], capabilities={"repair bicycle": 0.9})
    session = Session(chain(model, mechanic), saver)

    [question] = world.send(session, "go").questions
    assert question.path == "head/a/b/c/d"
    assert world.answer(session, {question.id: "front"}).text == "done"
    assert model.repeated_calls == []


def test_two_tasks_go_their_ways_side_by_side(world: World, saver: SqliteCheckpointer) -> None:
    head = Reply(calls=[find("Repair the bicycle"), find("Sing a song")])
    model = ScriptedModel({"head": [head, "done"], "d": ["as new"], "other": ["la la"]})
    session = Session(chain(model, Agent("d", capabilities={"repair bicycle": 0.9})), saver)

    assert world.send(session, "go").text == "done"

    root: Any = session.thread_store.get(session.thread_id).messages
    assert sorted(m.text for m in root if m.type == "tool") == ["as new", "la la"]


def stations(number: int, own: str) -> list[Agent]:
    """Return teams of five agents that can all do the same, and each something else as well."""
    examples = ["Will it rain tomorrow?", "How hot is it outside?"]
    able = {"weather": Capability(0.9, examples)}
    names = [f"s{each:02}" for each in range(number)]
    return [
        Agent(
            f"team{at}",
            subordinates=[
                Agent(each, capabilities=able | ({own.format(each): 0.8} if own else {}))
                for each in names[at : at + 5]
            ],
            capabilities={f"region {at}": 0.9},
        )
        for at in range(0, number, 5)
    ]


@pytest.mark.parametrize("task", ["What is the weather?", "Will it rain tomorrow?"])
@pytest.mark.parametrize(("number", "own"), [(1, ""), (10, ""), (10, "city {}"), (50, "city {}")])
def test_agents_that_can_do_the_same_do_not_make_each_other_unable(
    world: World, saver: SqliteCheckpointer, number: int, own: str, task: str
) -> None:
    model = ScriptedModel({"head": [find(task), "done"], "s00": ["sunny"]})
    session = Session(Agent("head", model=model, subordinates=stations(number, own)), saver)

    world.send(session, "go")

    answer = answer_of(session)
    assert (answer.status, answer.result, answer.agent) == ("fulfilled", "sunny", "s00")


@pytest.mark.parametrize("own", ["", "city {}"])
@pytest.mark.parametrize("many", [False, True])
def test_of_equal_agents_each_request_of_a_message_gets_one_that_is_not_at_work(
    world: World, saver: SqliteCheckpointer, many: bool, own: str
) -> None:
    named = delegate("busy", "Wait for the rain")
    tasks = [find(f"What is the weather in {each}?") for each in ("Rome", "Bonn", "Lima", "Oslo")]
    calls: list[Any] = [named, *tasks]
    names = ["busy", "s1", "s2", "s3"]
    # With more requests than agents, the first of them gets the last one too.
    answers = {"busy": ["wet", "dry"], **{each: ["sunny"] for each in names[1:]}}
    first = Reply(calls=[delegate_many(*calls)] if many else calls)
    model = ScriptedModel({"head": [first, "done"], **answers})
    below = [
        Agent(each, capabilities=dict.fromkeys(filter(None, ["weather", own.format(each)]), 0.9))
        for each in names
    ]
    session = Session(Agent("head", model=model, subordinates=below), saver)

    world.send(session, "go")

    asked = [(c.agent, m.text) for c in model.calls for m in c.messages if m.type == "human"]
    assert sorted(asked[1:-1]) == [
        ("busy", "Wait for the rain"),
        ("busy", "What is the weather in Oslo?"),
        ("s1", "What is the weather in Rome?"),
        ("s2", "What is the weather in Bonn?"),
        ("s3", "What is the weather in Lima?"),
    ]


def test_two_tasks_in_one_sentence_go_to_two_agents(
    world: World, saver: SqliteCheckpointer
) -> None:
    task = find("Repair the bicycle and bake a cake")
    model = ScriptedModel({"head": [task, "done"], "d": ["as new"], "e": ["delicious"]})
    baker = Agent("e", capabilities={"bake cake": 0.9})
    session = Session(chain(model, Agent("d", capabilities={"repair bicycle": 0.9}), baker), saver)

    assert world.send(session, "go").text == "done"

    answer = answer_of(session)
    assert [each.agent for each in answer.subordinate_responses] == ["d", "e"]
    assert answer.status == "fulfilled"
    assert "as new" in answer.result
    assert "delicious" in answer.result
    last = {c.agent: c.messages[-1].text for c in model.calls}
    assert (last["d"], last["e"]) == ("Repair the bicycle", "and bake a cake")
