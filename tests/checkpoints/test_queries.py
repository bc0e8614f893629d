"""A plan says what it wants read, and waits in either world without knowing which."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, SqliteCheckpointer
from echelons.checkpoints.queries import (
    AllCheckpoints,
    ChannelWrites,
    LatestCheckpointId,
    OneCheckpoint,
    ReadPlan,
    arun_plan,
    run_plan,
)
from echelons.testing import ScriptedModel, delegate

TASK: Any = {"messages": [("user", "plan")]}


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


@pytest.fixture(params=["ours", "memory"])
def saver(request: pytest.FixtureRequest) -> Any:
    """A saver that holds two threads of a tree."""
    model = ScriptedModel({"head": [delegate("eat", "x"), "end"], "eat": ["pizza"]})
    head = Agent("head", model=model, subordinates=[Agent("eat")])
    opened: Any = SqliteCheckpointer(":memory:") if request.param == "ours" else InMemorySaver()
    for thread in ("a", "b"):
        head.compile(opened).invoke(TASK, config(thread))
    yield opened
    if request.param == "ours":
        opened.close()


def messages_of(thread: str) -> ReadPlan[list[str]]:
    """Read the texts of a root's thread, in two steps."""
    latest = yield OneCheckpoint(thread)
    history = yield ChannelWrites(latest.config, ("messages",))
    return [m.text for _, _, write in history["messages"]["writes"] for m in write]


async def test_a_plan_comes_to_the_same_result_in_both_worlds(saver: Any) -> None:
    here, there = run_plan(saver, messages_of("a")), await arun_plan(saver, messages_of("a"))

    assert here == there
    assert here[-1] == "end"


async def test_a_plan_that_asks_nothing_is_done_at_once(saver: Any) -> None:
    def nothing() -> ReadPlan[int]:
        return 5
        yield  # type: ignore[unreachable]

    assert run_plan(saver, nothing()) == await arun_plan(saver, nothing()) == 5


async def test_one_checkpoint_is_the_latest_of_its_namespace_or_the_one_named(saver: Any) -> None:
    latest = OneCheckpoint("a").get(saver)
    assert latest is not None
    older = latest.parent_config["configurable"]["checkpoint_id"]  # type: ignore[index]

    assert latest == saver.get_tuple(config("a"))
    found = await OneCheckpoint("a", "", older).aget(saver)
    assert found is not None
    assert found.checkpoint["id"] == older


async def test_what_is_not_there_is_nothing(saver: Any) -> None:
    assert OneCheckpoint("nowhere").get(saver) is None
    assert await OneCheckpoint("a", "nowhere").aget(saver) is None
    assert AllCheckpoints("nowhere").get(saver) == []


async def test_all_checkpoints_of_a_thread_are_newest_first_whatever_their_namespace(
    saver: Any,
) -> None:
    found = AllCheckpoints("a").get(saver)

    assert found == await AllCheckpoints("a").aget(saver)
    ids = [each.checkpoint["id"] for each in found]
    assert ids == sorted(ids, reverse=True)
    assert len({each.config["configurable"]["checkpoint_ns"] for each in found}) == 3
    assert {each.config["configurable"]["thread_id"] for each in found} == {"a"}


async def test_checkpoints_are_chosen_by_their_metadata(saver: Any) -> None:
    ask = AllCheckpoints(None, {"agent": "eat"})

    found = ask.get(saver)

    assert found == await ask.aget(saver)
    assert {each.metadata["agent"] for each in found} == {"eat"}  # type: ignore[typeddict-item]
    assert {each.config["configurable"]["thread_id"] for each in found} == {"a", "b"}


async def test_an_error_of_a_plan_is_the_readers(saver: Any) -> None:
    def failing() -> ReadPlan[None]:
        yield OneCheckpoint("a")
        raise LookupError("not what was wanted")

    with pytest.raises(LookupError):
        run_plan(saver, failing())
    with pytest.raises(LookupError):
        await arun_plan(saver, failing())


async def test_the_id_of_a_latest_checkpoint_is_its_own_on_any_saver(saver: Any) -> None:
    latest = OneCheckpoint("a").get(saver)
    assert latest
    wanted = latest.config["configurable"]["checkpoint_id"]
    assert LatestCheckpointId("a").get(saver) == await LatestCheckpointId("a").aget(saver) == wanted
    for nowhere in (LatestCheckpointId("c"), LatestCheckpointId("a", "elsewhere")):
        assert nowhere.get(saver) is None
        assert await nowhere.aget(saver) is None
