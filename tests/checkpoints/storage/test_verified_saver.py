"""A process whose clock is behind goes on after what is stored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import id as langgraph_id
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.storage.verified_saver import advance_past
from echelons.testing import ScriptedModel

DAY = 86400 * 10**9


@pytest.fixture(autouse=True)
def another_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process have made no id yet, and forget those that it makes."""
    monkeypatch.setattr(langgraph_id, "_last_v6_timestamp", None)
    yield


def behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin anew, with a clock that is a day behind."""
    told = time.time_ns
    monkeypatch.setattr(langgraph_id, "_last_v6_timestamp", None)
    monkeypatch.setattr(time, "time_ns", lambda: told() - DAY)


def test_an_id_that_follows_another_is_greater_whatever_the_clock_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = str(uuid6())
    behind(monkeypatch)
    assert str(uuid6()) < stored

    advance_past(stored)

    later = [str(uuid6()) for _ in range(5)]
    assert sorted([stored, *later]) == [stored, *later]


@pytest.mark.parametrize(
    "stored",
    ["1", "", "x" * 36, "8b21577c-681e-471f-b70a-4f7302b9fc8c", f"{'f' * 12}-6{'f' * 3}-8000"],
)
def test_what_says_nothing_of_the_time_moves_no_id(stored: str) -> None:
    before = uuid6()

    advance_past(stored)

    assert str(before) < str(uuid6()) < tomorrow(before)


def test_an_id_that_leaves_no_room_for_later_ones_is_not_followed() -> None:
    before = uuid6()

    advance_past("ffffffff-ffff-6fff-8000-000000000000")

    assert str(before) < str(uuid6()) < tomorrow(before)


def tomorrow(now: UUID) -> str:
    """Return the id that is made a day after another; the first 48 bits count 409.6 µs."""
    return str(UUID(int=now.int + (DAY // 409_600 << 80)))


def test_a_turn_under_a_clock_that_was_set_back_is_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ScriptedModel(lambda messages: f"{len(messages)} messages")
    agent = Agent("head", guidance="", model=model)
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(agent, saver)
        session.send("go").result()
        behind(monkeypatch)

        assert session.send("go on").result().text == "3 messages"
        assert session.send("and on").result().text == "5 messages"


def test_a_branch_from_the_past_under_a_clock_that_was_set_back_is_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ScriptedModel(lambda messages: f"{len(messages)} messages")
    agent = Agent("head", guidance="", model=model)
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(agent, saver)
        session.send("go").result()
        past = session.graph.get_state(session.config).config
        session.send("go on").result()
        behind(monkeypatch)

        session.graph.invoke({"messages": [("user", "another way")]}, past)

        said = session.graph.get_state(session.config).values["messages"]
        assert [str(each.text) for each in said][2:] == ["another way", "3 messages"]


# Versions of channels


@given(st.integers(0, 10**8), st.lists(st.booleans(), max_size=30))
def test_versions_sort_in_their_order_also_with_those_of_langgraphs_savers(
    last: int, ours: list[bool]
) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        versions = [saver.get_next_version(f" {last}", None)]
        for own in ours:
            advance = (
                saver.get_next_version if own else partial(SqliteSaver.get_next_version, saver)
            )
            versions.append(advance(versions[-1], None))

    assert versions == sorted(set(versions))


def test_versions_are_short_and_sort_in_their_order(saver: SqliteCheckpointer) -> None:
    versions: list[str] = []
    for _ in range(10_100):
        versions.append(saver.get_next_version(versions[-1] if versions else None, None))

    assert versions == sorted(set(versions))
    assert [int(each) for each in versions] == list(range(1, 10_101))
    assert [len(versions[at]) for at in (0, 9, 99, 999, 9999)] == [2, 3, 4, 5, 6]


def test_a_number_of_another_saver_is_followed_by_a_number(saver: SqliteCheckpointer) -> None:
    assert saver.get_next_version(7, None) == 8


def test_a_thread_with_long_versions_goes_on(
    saver: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Agent("head", model=ScriptedModel({"head": ["one", "two"]})).compile(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    with monkeypatch.context() as before:
        before.setattr(saver, "get_next_version", partial(SqliteSaver.get_next_version, saver))
        graph.invoke({"messages": [("user", "a")]}, config)

    graph.invoke({"messages": [("user", "b")]}, config)
    fork = next(
        each for each in graph.get_state_history(config) if len(each.values["messages"]) == 2
    )
    graph.update_state(fork.config, {"messages": [("user", "c")]}, as_node="__start__")
    done = graph.invoke(None, config)

    assert [each.text for each in done["messages"]] == ["a", "one", "c", "one"]
    assert len(max(versions(saver))) == 32


def versions(saver: SqliteCheckpointer) -> list[str]:
    saved = saver.get_tuple({"configurable": {"thread_id": "t"}})
    assert saved
    return [str(each) for each in saved.checkpoint["channel_versions"].values()]


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as opened:
        yield opened
