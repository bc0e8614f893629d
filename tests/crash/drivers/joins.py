"""Kills races in the middle, and has another process finish them.

``python -m tests.crash.drivers.joins FOLDER STEP`` prints, as JSON, a report of a race that nothing
happens to, and of one for each way to be killed: when somebody has just won, while nobody has
answered yet, and before or after each STEPth statement. Each process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from echelons import Result, Session, SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import TreeRaces
from echelons.delegation.join import RaceEntry
from echelons.graphs import entry
from echelons.testing.crash import Count, Death, Watch, die, fork, watched
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import Place
from tests.scenarios.drivers.races import nothing, tree

ROUNDS = 20
"""How often a turn is taken up at most."""
ANSWERED = "bscout?"
"""The question that gets an answer; the other one is moot by then."""
JOINS = ("first", "quorum")


class Deadly(TreeRaces):
    """Races of which nobody hears that they were won."""

    def place(self, entrant: RaceEntry) -> int:
        """Write the winner down, and die."""
        place = super().place(entrant)
        if entrant.group == 2:
            die()
        return place


def live(place: Place, world: str, join: str, *, at_work: bool = False) -> None:
    """Bring a race to its end, whatever was done before."""

    def working() -> None:
        if at_work:
            die()

    agent = tree(
        join,
        lambda who: place.add("effects", who),
        working,
        lambda who: place.add("thoughts", who),
    )
    with SqliteCheckpointer(place.database) as saver:
        session = Session(agent, saver, thread="race")
        for _ in range(ROUNDS):
            result = taken_up(session, place, world)
            if result.finished:
                place.add("done", json.dumps(result.text))
                return
    raise AssertionError("the race comes to no end")


def taken_up(session: Session, place: Place, world: str) -> Result:
    """Take the next step: answer what is asked, or submit the turn, which goes on or begins."""
    inbox = session.inbox()
    answers = {each.id: answer_to(each.value, place) for each in inbox if each.value != "ascout?"}
    if world == "async":
        return asyncio.run(ataken_up(session, answers))
    run = session.answer(answers) if answers else session.send("go", turn_id="t")
    return run.result()


async def ataken_up(session: Session, answers: dict[str, Any]) -> Result:
    """Do the same in an event loop."""
    run = await (session.aanswer(answers) if answers else session.asend("go", turn_id="t"))
    return await run.result()


def answer_to(asked: Any, place: Place) -> Any:
    """Answer as a person would who looks into the world before saying what happened."""
    if asked == ANSWERED:
        return "yes"
    who = asked["arguments"]["who"]
    if asked["tool"] == "dig" and who in place.lines("effects"):
        return {"outcome": "happened", "result": f"{who} dug"}
    return {"outcome": "run_again"}


def look(place: Place, join: str) -> dict[str, Any]:
    """Return all that is there when a race is over."""
    agent = tree(join, nothing)
    with SqliteCheckpointer(place.database) as saver:
        session = Session(agent, saver, thread="race")
        keys = saver.conn.execute("SELECT key FROM ledger_values WHERE key LIKE '%/race/%'")
        places = [saver.ledger.get(key) for (key,) in keys.fetchall()]
        return {
            "integrity": [each for (each,) in saver.conn.execute("PRAGMA integrity_check")],
            "links": sorted(
                {str(each.state) for each in session.thread_store.verify(session.thread_id)}
            ),
            "statuses": {each.agent: each.status for each in session.trace().walk()},
            "inbox": [each.value for each in session.inbox()],
            "places": [each.value for each in places if each],
            "done": sorted({json.loads(each) for each in place.lines("done")}),
            "effects": sorted(place.lines("effects")),
            "thoughts": sorted(place.lines("thoughts")),
        }


def report(place: Place, name: Any, world: str, join: str, **deaths: Any) -> Report:
    """Let a race be killed, have another process finish it, and return what came of it."""
    winning, watch = deaths.pop("winning", False), deaths.pop("watch", Watch())

    def living() -> None:
        if winning:
            setattr(entry, "TreeRaces", Deadly)  # noqa: B010  it is no attribute to export
        with watched(watch):
            live(place, world, join, **deaths)

    def finishing() -> Any:
        live(place, WORLDS[1 - WORLDS.index(world)], join)
        return look(place, join)

    code = fork(living).wait()
    assert code in (0, -signal.SIGKILL), (name, code)
    # Who was not killed has nothing left to be finished.
    end = fork(finishing if code else partial(look, place, join)).result()
    shutil.rmtree(place.folder)
    return {"trial": name, "deaths": [[world, join, code]], "join": join, "end": end}


def at_statement(folder: Path, at: int) -> Report:
    """Kill a race on one side of a statement."""
    statement, rest = divmod(at, 8)
    side, world, join = rest % 2, WORLDS[rest // 2 % 2], JOINS[rest // 4]
    watch = Death(statement, ("before", "after")[side])
    return report(place_in(folder, at), at, world, join, watch=watch)


def main(given: str, step: str) -> None:
    """Make the trials, and print what came of them; nothing happens to the first two."""
    folder, reports, count = Path(given), [], Count()
    for number, join in enumerate(JOINS):
        place = place_in(folder, -1 - number)
        with watched(count):
            live(place, "sync", join)
        end = {"trial": join, "deaths": [], "join": join, "end": look(place, join)}
        reports.append(end)
    gc.freeze()  # or each fork copies every object that its collector looks at
    name = -10
    for join in JOINS:
        for world in WORLDS:
            for how in ("winning", "at_work"):
                name -= 1
                told = f"{how} {join} {world}"
                reports.append(report(place_in(folder, name), told, world, join, **{how: True}))
    trials = range(8, 8 * (len(count.statements) // 2), int(step))
    print(json.dumps([*reports, *spread(partial(at_statement, folder), trials)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
