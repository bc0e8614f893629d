"""Kills turns that wait for approvals, and has another process finish them.

``python -m tests.crash.drivers.approvals FOLDER STEP`` prints, as JSON, a report of two turns that
nothing happens to, of some that are killed when a call has been approved and has not begun, and of
some that are killed before or after each STEPth statement. Each process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from echelons import Agent, Decision, Permissions, Result, Session, SqliteCheckpointer
from echelons.checkpoints.coordination.journal import LedgerJournal
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.crash import Count, Death, Watch, die, fork, watched
from tests.crash.drivers.trials import WORLDS, Report, place_in, spread
from tests.crash.drivers.trip import Place
from tests.told_lines import get_last, read_whole, without_outcomes

TURNS = ("one", "two")
ROUNDS = 20
"""How often a turn is taken up at most."""
EDIT = Decision(
    "edit", edited_action={"name": "mail", "args": {"to": "eve"}}, scope="thread"
).to_json()


def build_tree(place: Place) -> Agent:
    """Return a tree of three levels: the clerk and its mails have to be approved."""

    def mail(to: str) -> str:
        """Send a mail."""
        place.add("effects", to)
        return f"mailed {to}"

    def think(agent: str, call: Call) -> Any:
        def step(messages: Sequence[BaseMessage]) -> Any:
            place.add("thoughts", agent)
            return (
                call
                if isinstance(get_last(messages), HumanMessage)
                else str(get_last(messages).text)
            )

        return step

    scripts: dict[str, Any] = {
        "head": think("head", delegate("mid", "go")),
        "mid": think("mid", delegate("clerk", "go")),
        "clerk": think("clerk", Call("mail", {"to": "bob"})),
    }
    mid = Agent("mid", subordinates=[Agent("clerk", tools=[mail])])
    permissions = Permissions(approvals={"mail": "ask", "clerk": "ask"})
    return Agent("head", model=ScriptedModel(scripts), subordinates=[mid], permissions=permissions)


def live(place: Place, world: str) -> None:
    """Bring both turns to their end, whatever was done before."""
    with SqliteCheckpointer(place.database) as saver:
        session = Session(build_tree(place), saver, thread="office")
        for turn in TURNS:
            for _ in range(ROUNDS):
                if take_up(session, place, world, turn).finished:
                    break
            else:
                raise AssertionError("the turn comes to no end")
            if turn not in place.lines("turns"):
                place.add("turns", turn)


def take_up(session: Session, place: Place, world: str, turn: str) -> Result:
    """Take the next step: answer what is asked, or submit the turn, which goes on or begins."""
    answers = {each.id: choose_answer(each.value, place) for each in session.inbox()}
    if world == "async":

        async def run() -> Result:
            going = session.aanswer(answers) if answers else session.asend("go", turn_id=turn)
            return await (await going).result()

        return asyncio.run(run())
    return (session.answer(answers) if answers else session.send("go", turn_id=turn)).result()


def choose_answer(asked: Any, place: Place) -> Any:
    """Answer as a person would who looks into the world before saying what happened."""
    if asked.get("type") == "tool_approval":
        place.add("asked", asked["name"])
        return EDIT if asked["name"] == "mail" else {"type": "approve", "scope": "thread"}
    assert asked["arguments"] == {"to": "eve"}, asked
    done = place.lines("effects").count("eve")
    expected = 1 + len(place.lines("turns"))
    return {"outcome": "happened", "result": "mailed eve"} if done >= expected else "run_again"


def look(place: Place) -> dict[str, Any]:
    """Return all that is there when both turns are over."""
    with SqliteCheckpointer(place.database) as saver:
        session = Session(build_tree(place), saver, thread="office")
        threads = [each.thread_id for each in session.trace().walk()]
        messages = [each for key in threads for each in session.thread_store.get(key).messages]
        return {
            "integrity": [each for (each,) in saver.conn.execute("PRAGMA integrity_check")],
            "said": [
                without_outcomes(read_whole(each))
                for each in messages
                if not isinstance(each, AIMessage)
            ],
            "inbox": [each.value for each in session.inbox()],
            "effects": place.lines("effects"),
            "asked": place.lines("asked"),
            "thoughts": sorted(place.lines("thoughts")),
        }


def report(place: Place, name: Any, world: str, watch: Watch, *, begins: bool = False) -> Report:
    """Let the turns be killed, have another process finish them, and return what came of it."""

    def living() -> None:
        if begins:
            setattr(LedgerJournal, "begin", lambda *_, **__: die())  # noqa: B010
        with watched(watch):
            live(place, world)

    def finishing() -> Any:
        live(place, WORLDS[1 - WORLDS.index(world)])
        return look(place)

    code = fork(living).wait()
    assert code in (0, -signal.SIGKILL), (name, code)
    end = fork(finishing if code else partial(look, place)).result()
    shutil.rmtree(place.folder)
    return {"trial": name, "deaths": [[world, code]], "end": end}


def at_statement(folder: Path, at: int) -> Report:
    """Kill the turns on one side of a statement."""
    statement, rest = divmod(at, 4)
    watch = Death(statement, ("before", "after")[rest % 2])
    return report(place_in(folder, at), at, WORLDS[rest // 2], watch)


def main(given: str, step: str) -> None:
    """Make the trials, and print what came of them; nothing happens to the first one."""
    folder, count = Path(given), Count()
    place = place_in(folder, -1)
    with watched(count):
        live(place, "sync")
    reports = [{"trial": "whole", "deaths": [], "end": look(place)}]
    gc.freeze()  # or each fork copies every object that its collector looks at
    for number, world in enumerate(WORLDS):
        where = place_in(folder, -2 - number)
        reports.append(report(where, f"begins {world}", world, Watch(), begins=True))
    trials = range(4, 4 * len(count.statements), int(step))
    print(json.dumps([*reports, *spread(partial(at_statement, folder), trials)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
