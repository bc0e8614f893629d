"""What a queue of requests stores grows with its length, not with its square."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from echelons import Agent, Human, Session, SqliteCheckpointer, ThreadStore
from echelons.delegation.questions import build_question_id
from echelons.identity.lineage import THREADS_KEY
from echelons.testing import Call, ScriptedModel, delegate, delegate_many

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

TABLES = {"checkpoints": ("checkpoint", "metadata"), "writes": ("value",), "events": ("data",)}
UNABLE = {"status": "unable", "reason": "on holiday"}


def build_calls(tasks: Sequence[str]) -> list[Call]:
    return [delegate("anna", task) for task in tasks]


def build_routed_calls(tasks: Sequence[str]) -> list[Call]:
    return [
        Call("call_subordinate", {"message": task, "capabilities": ["signing"]}) for task in tasks
    ]


def build_fan_out(tasks: Sequence[str]) -> list[Call]:
    return [delegate_many(*build_calls(tasks))]


def build_routed_fan_out(tasks: Sequence[str]) -> list[Call]:
    return [delegate_many(*build_routed_calls(tasks))]


WAYS = {
    "calls": build_calls,
    "routed": build_routed_calls,
    "delegate_many": build_fan_out,
    "routed delegate_many": build_routed_fan_out,
}


def build_office(build: Callable[[Sequence[str]], list[Call]], length: int) -> Agent:
    """Return a head that gives a person some tasks in one message; a clerk may sign as well."""
    calls = build([f"Sign paper {number}" for number in range(length)])

    def head(messages: Sequence[BaseMessage]) -> Any:
        answers = [message.text for message in messages if isinstance(message, ToolMessage)]
        return " | ".join(answers) if answers else calls

    model = ScriptedModel({"head": head, "clerk": lambda messages: "signed by the clerk"})
    anna = Human("anna", capabilities={"signing": 0.9})
    clerk = Agent("clerk", capabilities={"signing": 0.6})
    return Agent("head", model=model, subordinates=[anna, clerk])


def count_bytes(saver: SqliteCheckpointer) -> int:
    """Return the bytes of what is stored, without SQLite's pages."""
    columns = [(table, column) for table, names in TABLES.items() for column in names]
    queries = [f"SELECT sum(length({column})) FROM {table}" for table, column in columns]
    return sum(saver.conn.execute(query).fetchone()[0] for query in queries)


def run_office(
    world: World, build: Callable[[Sequence[str]], list[Call]], length: int, answer: Any
) -> tuple[str, int]:
    """Answer all questions of a person, and return the end and the bytes of the middle task."""
    sizes: list[int] = []
    with SqliteCheckpointer(":memory:") as saver, Session(build_office(build, length), saver) as s:
        result = world.send(s, "go")
        while result.questions:
            [question] = result.questions
            assert question.value.startswith(f"Sign paper {len(sizes)}")
            sizes.append(count_bytes(saver))
            given = f"{answer} {len(sizes)}" if isinstance(answer, str) else answer
            result = world.answer(s, {question.id: given})
        assert all(link.holds for link in s.thread_store.verify(s.thread_id))
    assert len(sizes) == length
    return result.text, sizes[length // 2] - sizes[length // 2 - 1]


@pytest.mark.parametrize("way", WAYS)
def test_a_task_of_a_person_adds_as_much_in_a_queue_twice_as_long(world: World, way: str) -> None:
    _, short = run_office(world, WAYS[way], 8, "signed")
    text, long = run_office(world, WAYS[way], 16, "signed")

    places = [text.index(f"signed {number}") for number in (1, 2, 15, 16)]
    assert places == sorted(places)
    assert long == pytest.approx(short, rel=0.03)


@pytest.mark.parametrize("way", ["routed", "routed delegate_many"])
def test_so_does_one_that_goes_on_to_the_next_candidate(world: World, way: str) -> None:
    _, short = run_office(world, WAYS[way], 8, UNABLE)
    text, long = run_office(world, WAYS[way], 16, UNABLE)

    assert text.count("signed by the clerk") == 16
    assert long == pytest.approx(short, rel=0.03)


def talk(world: World, length: int) -> int:
    """Send an agent some messages of one conversation at once, and return the bytes stored."""

    def head(messages: Sequence[BaseMessage]) -> Any:
        replies = [message for message in messages if isinstance(message, AIMessage)]
        if not replies:
            return delegate("clerk", "Begin")
        [thread] = replies[0].response_metadata[THREADS_KEY].values()
        named = {"answers": build_question_id(thread)}
        calls = [
            Call("call_subordinate", {"message": f"Go on {number}", **named})
            for number in range(length)
        ]
        return calls if len(replies) == 1 else "done"

    model = ScriptedModel({"head": head, "clerk": lambda messages: f"did {messages[-1].text}"})
    head_agent = Agent("head", model=model, subordinates=[Agent("clerk")])
    with SqliteCheckpointer(":memory:") as saver, Session(head_agent, saver) as session:
        assert world.send(session, "go").text == "done"
        [clerk] = ThreadStore(saver).subordinates(session.thread_id)
        answers = [str(message.text) for message in ThreadStore(saver).get(clerk).messages[1::2]]
        assert answers[1:] == [f"did Go on {number}" for number in range(length)]
        return count_bytes(saver)


@pytest.mark.parametrize("way", WAYS)
def test_tasks_side_by_side_take_twice_the_space_if_they_are_twice_as_many(
    world: World, way: str
) -> None:
    def run(length: int) -> int:
        calls = WAYS[way]([f"Sign paper {number}" for number in range(length)])

        def head(messages: Sequence[BaseMessage]) -> Any:
            return "done" if isinstance(messages[-1], ToolMessage) else calls

        model = ScriptedModel({"head": head, "anna": lambda messages: messages[-1].text})
        below = [Agent("anna", capabilities={"signing": 0.9}), Agent("clerk")]
        agent = Agent("head", model=model, subordinates=below)
        with SqliteCheckpointer(":memory:") as saver, Session(agent, saver) as session:
            assert world.send(session, "go").text == "done"
            assert len(ThreadStore(saver).subordinates(session.thread_id)) == length
            return count_bytes(saver)

    assert run(30) < 2.1 * run(15)


def test_a_queue_of_an_agent_takes_twice_the_space_if_it_is_twice_as_long(world: World) -> None:
    # Long enough for snapshots of its channels.
    assert talk(world, 240) < 2.1 * talk(world, 120)
