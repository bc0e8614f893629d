"""An agent is told of subordinates that come and go by notices, and never by its instructions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import BaseMessage

from echelons import Agent, Permissions, Session, Spawn, SqliteCheckpointer
from echelons.memory import Memory
from echelons.testing import Call, ScriptedModel, delegate
from tests.scenarios.drivers import dismissed_team
from tests.scenarios.test_notices import find_notices
from tests.told_lines import list_spawned

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

FIXTURES = Path(__file__).parents[1] / "fixtures"
LIVING = "You also have these subordinates, which call_subordinate reaches by name"
GONE = "Of your subordinates, these are gone, and nothing reaches them: "


def spawn(role: str, **arguments: Any) -> Call:
    """Return a call that makes a subordinate."""
    return Call("spawn_subordinate", {"role": role, "message": "look", **arguments})


def follow(*steps: Any) -> Any:
    """Return a script of steps, whatever is said."""
    left: Iterator[Any] = iter(steps)

    def answer(messages: Sequence[BaseMessage]) -> Any:
        step = next(left)
        return step(messages) if callable(step) else step

    return answer


def build(*steps: Any, **fields: Any) -> tuple[Agent, ScriptedModel]:
    """Return a head that may make subordinates, and has two, and its model."""
    model = ScriptedModel({"head": follow(*steps), "*": lambda _: "done"})
    below = [Agent("clerk"), Agent("guard")]
    rules = Permissions(spawn=Spawn())
    return Agent("head", model=model, permissions=rules, subordinates=below, **fields), model


def list_requests(model: ScriptedModel) -> list[Sequence[BaseMessage]]:
    """Return the requests of the head, in order."""
    return [each.messages for each in model.calls if each.agent == "head"]


def test_dismissal_by_the_user_is_shown_once_as_notice(
    world: World, saver: SqliteCheckpointer
) -> None:
    agent, model = build(delegate("clerk", "go"), "over", "again", "and again")
    session = Session(agent, saver)
    world.send(session, "go")
    world.do(session, "dismiss", "head/clerk")
    world.send(session, "on")
    world.send(session, "on")

    *_, first, second = list_requests(model)
    assert find_notices(first) == find_notices(second) == [f"{GONE}clerk."]
    assert str(first[0].text).endswith("are notices of the system.")
    for before, after in pairwise(list_requests(model)):
        assert after[: len(before)] == before


def test_dismissal_by_the_agent_is_reported_with_the_result(
    world: World, saver: SqliteCheckpointer
) -> None:
    def dismiss(messages: Sequence[BaseMessage]) -> Any:
        return Call("dismiss_subordinate", {"name": list_spawned(messages)[0]})

    agent, model = build(spawn("scout", keep=True), dismiss, "over")
    world.send(Session(agent, saver), "go")

    made, gone = find_notices(list_requests(model)[-1])
    assert made.endswith(" is there; call_subordinate reaches it by this name")
    assert gone.endswith(" is dismissed, with all below it")


def test_one_dismissed_by_the_user_is_gone_and_one_that_was_kept_stays(
    world: World, saver: SqliteCheckpointer
) -> None:
    agent, model = build([spawn("scout", keep=True), spawn("digger", keep=True)], "over", "again")
    session = Session(agent, saver)
    world.send(session, "go")
    scout, digger = list_spawned(list_requests(model)[-1])
    world.do(session, "dismiss", f"head/{scout}")
    world.send(session, "on")

    assert find_notices(list_requests(model)[-1])[-1] == f"{GONE}{scout}."
    assert list_spawned(list_requests(model)[-1]) == [digger]


@pytest.mark.parametrize("keeps", [True, False])
def test_summary_of_a_memory_precedes_the_kept_messages(
    world: World, saver: SqliteCheckpointer, keeps: bool
) -> None:
    memory = Memory(budget=3000, recent=2, summarizer="extractive")
    turns = [f"answer {number}" for number in range(8)]
    agent, model = build(
        [spawn("scout", keep=keeps), delegate("clerk", "go")], *turns, memory=memory
    )
    session = Session(agent, saver)
    world.send(session, "go")
    world.do(session, "dismiss", "head/clerk")
    for number in range(7):
        world.send(session, f"turn {number}")

    last = list_requests(model)[-1]
    [notice] = find_notices(last)
    assert "turn 0" not in str([each.text for each in last[1:]])
    assert (LIVING in notice) is keeps
    assert f"{GONE}clerk." in notice
    # It changes with the summaries alone.
    begins = [(str(each[0].text), str(each[1].text)) for each in list_requests(model)]
    assert len({*begins}) == len({system for system, _ in begins})


def test_invalid_value_is_explained_again(world: World, saver: SqliteCheckpointer) -> None:
    def answer(messages: Sequence[BaseMessage]) -> Any:
        if sum(len(str(each.text)) for each in messages) > 9000:
            raise ContextOverflowError("too long")
        return "ok"

    turns = [answer] * 12
    agent, model = build(spawn("scout", keep=True), "over", *turns)
    session = Session(agent, saver)
    world.send(session, "go")
    for number in range(5):
        world.send(session, f"{number}" * 2000)

    last = list_requests(model)[-1]
    assert not [each for each in last if each.type == "tool"]
    [notice] = find_notices(last)
    assert notice.startswith(f"{LIVING}, with what each was made for: scout-")


def test_database_of_earlier_version_is_reported_once(world: World, tmp_path: Path) -> None:
    path = Path(shutil.copy(FIXTURES / "dismissed.db", tmp_path))
    team = dismissed_team.build_team()
    assert isinstance(team.model, ScriptedModel)
    with (
        SqliteCheckpointer(path) as saver,
        Session(team, saver, thread=dismissed_team.THREAD) as session,
    ):
        world.resume(session)
        world.send(session, "look again")

    requests = list_requests(team.model)
    for request in requests:
        said = [each for each in find_notices(request) if LIVING in each]
        assert len(said) == 1
        assert "digger-" in said[0] and "scout" not in said[0].partition(GONE)[0]
        assert said[0].endswith(f"{GONE}north.")
    for before, after in pairwise(requests):
        assert after[: len(before)] == before
