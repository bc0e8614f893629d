"""Kills turns with a question that nobody waits for, and has another process finish them.

``python -m tests.crash.drivers.later_questions FOLDER TRIALS`` prints, as JSON, a report of two
turns that nothing happens to, and of so many that are killed at a statement. Each process is a
fork of this one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from echelons import Agent, Permissions, Session, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.crash import Count, Death, fork, watched
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import Place
from tests.told_lines import get_last

TOLD = "Answer of the user"
"""What a message begins with that tells an answer."""


def build_tree() -> Agent:
    """Return a head whose scout asks in its first turn, and always says how much it was told."""

    def scout(messages: Sequence[BaseMessage]) -> Any:
        if len(messages) == 1:
            return Call("ask_later", {"question": "Which city?"})
        return f"{len(list_told(messages))} told"

    def head(messages: Sequence[BaseMessage]) -> Any:
        is_task = isinstance(get_last(messages), HumanMessage)
        return delegate("scout", "go") if is_task else str(get_last(messages).text)

    below = Agent("scout", permissions=Permissions(contact_user=True))
    model = ScriptedModel({"head": head, "scout": scout})
    return Agent("head", guidance="", model=model, subordinates=[below])


def list_told(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the answers that an agent was told."""
    return [str(each.text) for each in messages if TOLD in each.text]


def live(place: Place, world: str) -> dict[str, Any]:
    """Bring both turns to their end, answer what is open between them, and return the end."""
    with SqliteCheckpointer(place.database) as saver:
        session = Session(build_tree(), saver, thread="t")
        if world == "sync":
            said = [_turn(session, place, turn) for turn in ("one", "two")]
        else:
            said = asyncio.run(_aturns(session, place))
        [scout] = session.thread_store.subordinates(session.thread_id)
        return {
            "said": said,
            "told": list_told(session.thread_store.get(scout).messages),
            "asked": len({*place.lines("asked")}),
            "left": len(session.inbox()),
            "integrity": [each for (each,) in saver.conn.execute("PRAGMA integrity_check")],
        }


def _turn(session: Session, place: Place, turn: str) -> str:
    text = session.send("go", turn_id=turn).result().text
    for each in session.inbox():
        place.add("asked", each.id)
        session.answer(each.id, "Rome").result()
    return text


async def _aturns(session: Session, place: Place) -> list[str]:
    said = []
    for turn in ("one", "two"):
        said.append((await (await session.asend("go", turn_id=turn)).result()).text)
        for each in await session.ainbox():
            place.add("asked", each.id)
            await (await session.aanswer(each.id, "Rome")).result()
    return said


def trial(folder: Path, statements: int, number: int) -> Report:
    """Kill the turns on one side of a statement."""
    chance, place = random.Random(number), place_in(folder, number)
    world, side = WORLDS[number % 2], ("before", "after")[number // 2 % 2]
    at = chance.randint(1, statements)

    def living() -> None:
        with watched(Death(at, side)):  # type: ignore[arg-type]
            live(place, world)

    code = fork(living).wait()
    assert code in (0, -signal.SIGKILL), (number, code)
    end = fork(partial(live, place, chance.choice(WORLDS))).result()
    shutil.rmtree(place.folder)
    return {"trial": [world, side, at], "deaths": [[world, code]], "end": end}


def main(given: str, trials: str) -> None:
    """Make the trials, and print what came of them; nothing happens to the first one."""
    folder, count = Path(given), Count()
    with watched(count):
        first = {"trial": "whole", "deaths": [], "end": live(place_in(folder, -1), "sync")}
    gc.freeze()  # or each fork copies every object that its collector looks at
    turns = partial(trial, folder, len(count.statements))
    print(json.dumps([first, *spread(turns, range(int(trials)))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
