"""A ``first`` or ``quorum`` join that is interrupted in whatever way loses nothing and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.threads.trace import CUT_SHORT
from echelons.errors import QuestionClosed
from echelons.testing import Call, ScriptedModel
from tests.scenarios.drivers.races import ENDS, LOST, PLACES, STATUSES, Died, Race

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def many(*names: str, join: str = "first", **more: Any) -> Call:
    requests = [{"message": f"Ask {name}", "subordinate": name} for name in names]
    return Call("delegate_many", {"requests": requests, "join": join, **more})


def test_a_thread_goes_on_after_a_turn_that_asked_several(
    world: World, saver: SqliteCheckpointer
) -> None:
    scripts: dict[str, Any] = {"head": [many("a", "b", join="all"), "done"], "*": ["x"]}
    head = Agent("head", model=ScriptedModel(scripts), subordinates=[Agent("a"), Agent("b")])

    assert world.send(Session(head, saver), "go").text == "done"
    assert world.send(Session(head, saver), "go on").text == "done"


JOINS = ["first", "quorum"]
MOMENTS = ["at work", "decided"]
WAYS = [
    ("sync", "dies"),
    ("async", "is cancelled"),
    ("sync", "run pauses"),
    ("async", "run pauses"),
    ("sync", "session pauses"),
    ("async", "session pauses"),
]


@pytest.fixture
def race(join: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Race]:
    race = Race(tmp_path / "race.sqlite", join, moment)
    race.patched(monkeypatch)
    yield race
    race.saver.close()


def interruption(how: str, race: Race) -> Callable[[], Any]:
    """Return what interrupts a run where it is called."""

    def dies() -> None:
        raise Died

    async def is_cancelled() -> None:
        race.task.cancel()
        await asyncio.Event().wait()

    def run_pauses() -> None:
        race.run.pause()

    def session_pauses() -> None:
        race.session.pause("head/mid/b" if race.moment == "at work" else None)

    return {
        "dies": dies,
        "is cancelled": is_cancelled,
        "run pauses": run_pauses,
        "session pauses": session_pauses,
    }[how]


def interrupted(world: World, race: Race, how: str) -> dict[str, str]:
    """Have a run interrupted, and return the ids of what was asked before, by question."""
    asked = race.asked(world.do(race, "go", "send", "go"))
    assert list(asked) == ["ascout?", "bscout?"]
    race.happens = interruption(how, race)
    if how in ("dies", "is cancelled"):
        with pytest.raises(Died if how == "dies" else asyncio.CancelledError):
            world.do(race, "go", "answer", {asked["bscout?"]: "yes"})
    else:
        result = world.do(race, "go", "answer", {asked["bscout?"]: "yes"})
        assert not result.finished
        race.asked(result)
    assert race.has_happened
    return asked


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("world", "how"), WAYS, indirect=["world"])
def test_a_race_that_is_interrupted_goes_on_in_another_session_and_ends_as_without(
    world: World, race: Race, join: str, moment: str, how: str
) -> None:
    asked = interrupted(world, race, how)
    race.reopen()

    still_open = ["ascout?"] if moment == "at work" else []
    assert [each.value for each in race.session.inbox()] == still_open
    assert race.places() == ([PLACES[join]] if moment == "decided" else [[3]][: join == "quorum"])
    result = world.do(race, "go", "resume")

    assert (result.text, result.questions) == (ENDS[join], ())
    ended_well(race, join)
    refused(world, race, asked["ascout?"])


def ended_well(race: Race, join: str) -> None:
    """Check that a race has ended once, that nothing was done twice, and that all is marked."""
    assert race.places() == [PLACES[join]]
    assert sorted(race.dug) == ["ascout", "bscout", "c"]
    assert race.model.repeated_calls == []
    c = "fulfilled" if join == "quorum" else "unable"
    told = race.told()
    assert {name: status for name, (status, _) in told.items()} == {**STATUSES, "c": c}
    assert told["a"][1] == LOST
    # Its superior had lost already, or had no more time to hear of it.
    assert told["ascout"][1] in (LOST, CUT_SHORT)
    assert race.rows() == {"a": "unable", "b": "fulfilled", "c": c}
    assert {
        str(link.state) for link in race.session.thread_store.verify(race.session.thread_id)
    } == {"ok"}
    assert race.session.inbox() == []


def refused(world: World, race: Race, question: str) -> None:
    """Check that an answer to a question that is moot is refused by name, and changes nothing."""
    before = race.told()
    with pytest.raises(QuestionClosed):
        world.do(race, "go", "answer", {question: "too late"})
    assert race.told() == before


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("moment", ["decided"])
def test_a_question_is_moot_as_soon_as_the_race_is_decided_whatever_happens_then(
    world: World, race: Race, join: str, moment: str
) -> None:
    asked = interrupted(world, race, "dies")
    race.reopen()

    refused(world, race, asked["ascout?"])
    assert world.do(race, "go", "resume").text == ENDS[join]
    ended_well(race, join)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("moment", [""])
def test_a_race_that_nothing_happens_to_ends_the_same(world: World, race: Race, join: str) -> None:
    asked = race.asked(world.do(race, "go", "send", "go"))

    result = world.do(race, "go", "answer", {asked["bscout?"]: "yes"})

    assert (result.text, result.questions) == (ENDS[join], ())
    ended_well(race, join)
    refused(world, race, asked["ascout?"])


# Stopped

STOPPED = "stopped: head/mid was told to stop"


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_race_of_superior_stopped_midway_leaves_no_request_open(
    world: World, race: Race, join: str, moment: str
) -> None:
    asked = race.asked(world.do(race, "go", "send", "go"))
    race.happens = lambda: race.session.stop("head/mid") and None

    result = world.do(race, "go", "answer", {asked["bscout?"]: "yes"})

    assert (result.text, result.questions) == (f"[unable] {STOPPED}", ())
    stopped_well(world, race, asked)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("moment", [""])
def test_race_of_superior_stopped_while_waiting_leaves_no_request_open(
    world: World, race: Race
) -> None:
    asked = race.asked(world.do(race, "go", "send", "go"))
    world.do(race.session, "stop", "head/mid")
    race.reopen()

    assert race.session.inbox() == []
    assert world.do(race, "go", "resume").text == f"[unable] {STOPPED}"
    stopped_well(world, race, asked)
    refused(world, race, asked["bscout?"])


def stopped_well(world: World, race: Race, asked: dict[str, str]) -> None:
    told = race.told()
    assert told["mid"] == ("unable", STOPPED)
    assert all(status != "open" for status, _ in told.values())
    assert sorted(race.dug) == ["ascout", "bscout", "c"]
    assert race.model.repeated_calls == []
    assert {
        str(link.state) for link in race.session.thread_store.verify(race.session.thread_id)
    } == {"ok"}
    refused(world, race, asked["ascout?"])


@pytest.mark.parametrize(("join", "moment"), [("quorum", "")])
def test_an_entrant_that_is_stopped_leaves_the_race_to_the_others(
    world: World, race: Race, join: str
) -> None:
    asked = race.asked(world.do(race, "go", "send", "go"))
    world.do(race.session, "stop", "head/mid/a")

    assert [each.value for each in race.session.inbox()] == ["bscout?"]
    refused(world, race, asked["ascout?"])
    result = world.do(race, "go", "answer", {asked["bscout?"]: "yes"})

    assert (result.text, race.places()) == (ENDS[join], [PLACES[join]])
    assert race.told()["a"][0] == "unable"
    assert sorted(race.dug) == ["ascout", "bscout", "c"]
