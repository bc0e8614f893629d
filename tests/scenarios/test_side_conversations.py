"""Several tasks for one subordinate in one message: side by side, and each can be continued."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons import Agent, Human, Session, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel, delegate, delegate_many
from tests.failure_ids import without_conversation_ids

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

ID = re.compile(r'answers="(\w+)"')
TASKS = [f"task {number}" for number in range(10)]


def recall(messages: Sequence[BaseMessage]) -> str:
    """Answer with every task that is remembered."""
    return " + ".join(str(each.text) for each in messages if isinstance(each, HumanMessage))


def continue_with(task: str, place: int) -> Any:
    """Return a script that continues the conversation of one of the latest answers."""

    def script(messages: Sequence[BaseMessage]) -> Call:
        ids = ID.findall("\n".join(str(each.text) for each in messages))
        return Call("call_subordinate", {"message": task, "answers": ids[place]})

    return script


def play(steps: list[Any]) -> Any:
    """Return a script that takes one step for each reply; a step may be a script itself."""

    def script(messages: Sequence[BaseMessage]) -> Any:
        step = steps[sum(isinstance(each, AIMessage) for each in messages)]
        return step(messages) if callable(step) else step

    return script


def build_team(steps: list[Any], guide: Any = recall) -> Agent:
    model = ScriptedModel({"head": play(steps), "guide": guide})
    return Agent("head", model=model, subordinates=[Agent("guide"), Agent("scout")])


def list_results(session: Session) -> list[str]:
    messages = session.thread_store.get(session.thread_id).messages
    texts = [str(each.text) for each in messages if isinstance(each, ToolMessage)]
    return [*map(without_conversation_ids, texts)]


async def test_ten_tasks_without_reset_run_side_by_side_over_three_turns(
    saver: SqliteCheckpointer,
) -> None:
    meeting = asyncio.Barrier(10)

    async def meet(messages: Sequence[BaseMessage]) -> str:
        async with asyncio.timeout(120):
            await meeting.wait()
        return recall(messages)

    turn = [delegate("guide", task) for task in TASKS]
    async with Session(build_team([turn, "1", turn, "2", turn, "3"], meet), saver) as session:
        for _ in range(3):
            await (await session.asend("go")).result()
        results = list_results(session)

    first, others = results[::10], [each for n, each in enumerate(results) if n % 10]
    assert first == ["task 0", "task 0 + task 0", "task 0 + task 0 + task 0"]
    assert others == TASKS[1:] * 3


@pytest.mark.parametrize("many", [False, True], ids=["calls", "delegate_many"])
def test_each_of_several_answers_has_an_id_that_continues_its_conversation(
    world: World, saver: SqliteCheckpointer, many: bool
) -> None:
    calls: list[Any] = [delegate("guide", "one"), delegate("guide", "two")]
    first = delegate_many(*calls) if many else calls
    steps = [first, continue_with("three", 1), "a", continue_with("four", 1), "b"]
    latest = [delegate("guide", "five"), "c"]
    with Session(build_team([*steps, *latest]), saver) as session:
        for _ in range(3):
            world.send(session, "go")
        results = list_results(session)

    assert results[-3:] == ["two + three", "two + three + four", "one + five"]


def test_single_answer_has_no_id(world: World, saver: SqliteCheckpointer) -> None:
    calls = [delegate("guide", "one"), delegate("scout", "two")]
    model = ScriptedModel({"head": [calls, "end"], "*": recall})
    head = Agent("head", model=model, subordinates=[Agent("guide"), Agent("scout")])
    with Session(head, saver) as session:
        world.send(session, "go")
        messages = session.thread_store.get(session.thread_id).messages

    assert [each.text for each in messages if isinstance(each, ToolMessage)] == ["one", "two"]


def test_two_tasks_for_one_id_are_worked_off_in_order(
    world: World, saver: SqliteCheckpointer
) -> None:
    def both(messages: Sequence[BaseMessage]) -> list[Call]:
        return [continue_with(task, 1)(messages) for task in ("three", "four")]

    steps = [[delegate("guide", "one"), delegate("guide", "two")], both, "end"]
    with Session(build_team(steps), saver) as session:
        world.send(session, "go")
        results = list_results(session)

    assert results == ["one", "two", "two + three", "two + three + four"]


@pytest.mark.parametrize("reset", [{}, {"reset": False}, {"reset": None}])
def test_reset_that_is_false_or_null_or_left_out_is_the_same(
    world: World, saver: SqliteCheckpointer, reset: dict[str, Any]
) -> None:
    def call(task: str) -> Call:
        return Call("call_subordinate", {"message": task, "subordinate": "guide", **reset})

    with Session(build_team([call("one"), call("two"), "end"]), saver) as session:
        world.send(session, "go")
        results = list_results(session)

    assert results == ["one", "one + two"]


def test_routed_tasks_for_an_agent_further_down_run_side_by_side(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [Call("call_subordinate", {"message": f"Repair bicycle {n}"}) for n in (1, 2)]
    later = Call("call_subordinate", {"message": "Repair bicycle 3"})
    steps = [calls, "a", later, "b"]
    model = ScriptedModel({"head": play(steps), "mechanic": recall})
    mechanic = Agent("mechanic", capabilities={"repair bicycle": 0.9})
    kitchen = Agent("kitchen", capabilities={"cooking": 0.9})
    workshop = Agent("workshop", subordinates=[mechanic])
    with Session(Agent("head", model=model, subordinates=[workshop, kitchen]), saver) as session:
        world.send(session, "go")
        world.send(session, "go")
        results = list_results(session)

    assert results == [
        "Repair bicycle 1",
        "Repair bicycle 2",
        "Repair bicycle 1 + Repair bicycle 3",
    ]


def test_person_gets_the_tasks_of_a_message_one_after_another(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [delegate("anna", task) for task in ("one", "two")]
    model = ScriptedModel({"head": [calls, "end"]})
    head = Agent("head", model=model, subordinates=[Human("anna")])
    with Session(head, saver) as session:
        asked = world.send(session, "go")
        shown = [[each.value for each in asked.questions]]
        while asked.questions:
            asked = world.answer(session, {asked.questions[0].id: "yes"})
            shown.append([each.value for each in asked.questions])
        messages = session.thread_store.get(session.thread_id).messages

    assert [len(each) for each in shown] == [1, 1, 0]
    assert [each.text for each in messages if isinstance(each, ToolMessage)] == ["yes", "yes"]


def test_side_conversations_are_shown_as_threads_of_their_agent(
    world: World, saver: SqliteCheckpointer
) -> None:
    steps = [[delegate("guide", "one"), delegate("guide", "two")], "end"]
    with Session(build_team(steps), saver) as session:
        world.send(session, "go")
        below = session.trace().subordinates
        [record] = [each for each in session.registry().agents if each.path == "head/guide"]

    assert [each.requests[0].sent.task for each in below] == ["one", "two"]
    assert set(record.thread_ids) == {each.thread_id for each in below}
