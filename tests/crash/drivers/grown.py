"""Kills a tree that its own agents grow, and has other processes let it go on.

``python -m tests.crash.drivers.grown FOLDER AGENTS TRIALS`` prints, as JSON, a report of a tree
that nothing happens to, and of one for each of so many trials, killed at ten moments. Each process
is a fork of this one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from echelons import Agent, Limits, Permissions, Question, Session, Spawn, SqliteCheckpointer
from echelons.testing import ScriptedModel
from echelons.testing.crash import Count, Death, fork, watched
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import Place
from tests.told_lines import is_said

BRANCHES = 3
"""The subordinates that each agent makes, as long as there are numbers left."""
DEATHS = 10


def build_seed(place: Place, agents: int) -> Agent:
    """Return an agent from which a tree of that many grows: number 0, as of a heap.

    Each makes the agents that its own number is above, and writes down what it was given.
    """

    def note(number: str) -> str:
        """Write a number down: the same twice is a mistake."""
        place.add("effects", number)
        return f"noted {number}"

    def grow(messages: Sequence[BaseMessage]) -> Any:
        tasks = [each for each in messages if is_said(each)]
        number = int(str(tasks[-1].text))
        # With the ids of its replies the same each time, two trees can be compared.
        if any(each.type == "tool" for each in messages):
            return AIMessage(f"grown {number}", id=f"end of {number}")
        first = BRANCHES * number + 1
        calls = [("note", {"number": str(number)})]
        calls += [
            ("spawn_subordinate", {"role": f"node {each}", "message": str(each)})
            for each in range(first, min(first + BRANCHES, agents))
        ]
        made: list[Any] = [
            {"name": name, "args": args, "id": f"call {place}"}
            for place, (name, args) in enumerate(calls)
        ]
        return AIMessage("", tool_calls=made, id=f"reply of {number}")

    permissions = Permissions(spawn=Spawn(tools=("note",), levels=6))
    limits = Limits(steps=10_000)
    model = ScriptedModel(grow)
    return Agent("node", model=model, tools=[note], permissions=permissions, limits=limits)


def live(place: Place, world: str, agents: int) -> dict[str, Any]:
    """Let the tree grow to its end, and return what it is."""
    with (
        SqliteCheckpointer(place.database) as saver,
        Session(build_seed(place, agents), saver, thread="t") as session,
    ):
        result: Any = None
        for _ in range(DEATHS * 8):
            result = asyncio.run(_asend(session)) if world == "async" else _send(session)
            if result.finished:
                break
            answers = {each.id: _answer(place, each) for each in result.questions}
            session.answer(answers).result()
        return {
            "text": result.text,
            "tree": sorted(
                [str(each.agent), each.thread_id, str(each.requests[-1].response.status)]
                for each in session.trace().walk()
                if each.requests and each.requests[-1].response
            ),
            "effects": sorted(place.lines("effects"), key=int),
        }


def _answer(place: Place, asked: Question) -> Any:
    """Return what became of a call that was cut short; the effects tell whether it happened."""
    number = asked.value["arguments"]["number"]
    if number in place.lines("effects"):
        return {"outcome": "happened", "result": f"noted {number}"}
    return "run_again"


def kill_often(folder: Path, agents: int, statements: int, number: int) -> Report:
    """Kill a tree at ten moments while it grows."""
    chance, place = random.Random(number), place_in(folder, number)
    deaths: list[Any] = []
    for _ in range(DEATHS):
        world = chance.choice(WORLDS)
        at = chance.randint(1, max(statements // DEATHS * 2, 2))
        watch = Death(at, chance.choice(("before", "after")))

        def living(world: str = world, watch: Death = watch) -> None:
            with watched(watch):
                live(place, world, agents)

        deaths.append([world, at, fork(living).wait()])
    end = fork(partial(live, place, chance.choice(WORLDS), agents)).result()
    shutil.rmtree(place.folder)
    return {"trial": number, "deaths": deaths, "end": end}


def main(given: str, agents: str, trials: str) -> None:
    """Make the trials, and print what came of them; nothing happens to the first."""
    folder, count = Path(given), Count()
    with watched(count):
        first = {"trial": -1, "deaths": [], "end": live(place_in(folder, -1), "sync", int(agents))}
    gc.freeze()
    trial = partial(kill_often, folder, int(agents), len(count.statements))
    print(json.dumps([first, *spread(trial, range(int(trials)))]))


def _send(session: Session) -> Any:
    return session.send("0", turn_id="1").result()


async def _asend(session: Session) -> Any:
    return await (await session.asend("0", turn_id="1")).result()


if __name__ == "__main__":
    main(*sys.argv[1:])
