"""A turn's id belongs to the branch of its thread that has the turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from echelons import Agent, Session, SqliteCheckpointer
from echelons.testing import ScriptedModel
from tests.error_codes import raises_code


@pytest.fixture
def session() -> Iterator[Session]:
    with SqliteCheckpointer(":memory:") as saver, Session(build_tree(), saver) as opened:
        yield opened


def build_tree() -> Agent:
    replies = (f"reply {number}" for number in count(1))
    return Agent("head", model=ScriptedModel(lambda _: next(replies)))


def send(session: Session, task: str, turn_id: str) -> tuple[str, bool]:
    result = session.send(task, turn_id=turn_id).result()
    return result.text, result.replayed


def test_turn_of_other_branch_is_run(session: Session) -> None:
    send(session, "one", "1")
    before = session.graph.get_state(session.config).config
    assert send(session, "two", "2") == ("reply 2", False)
    session.graph.update_state(before, {"messages": []}, as_node="reason")

    assert send(session, "one", "1") == ("reply 1", True)
    assert send(session, "another", "2") == ("reply 3", False)
    assert send(session, "another", "2") == ("reply 3", True)
    with raises_code("turn_reused"):
        send(session, "two", "2")
    assert send(session, "three", "3") == ("reply 4", False)
    assert send(session, "another", "2") == ("reply 3", True)


def test_turn_that_a_branch_has_ended_otherwise(session: Session) -> None:
    send(session, "one", "1")
    [start] = [
        state
        for state in session.graph.get_state_history(session.config)
        if state.next == ("reason",)
    ]
    session.graph.update_state(start.config, {"messages": []})
    assert session.resume().result().text == "reply 2"

    assert send(session, "one", "1") == ("reply 2", True)


async def test_turn_of_other_branch_is_run_asynchronously() -> None:
    async with Session(build_tree(), ":memory:") as session:
        await (await session.asend("one", turn_id="1")).result()
        before = (await session.graph.aget_state(session.config)).config
        await (await session.asend("two", turn_id="2")).result()
        await session.graph.aupdate_state(before, {"messages": []}, as_node="reason")

        result = await (await session.asend("two", turn_id="2")).result()

    assert (result.text, result.replayed) == ("reply 3", False)
