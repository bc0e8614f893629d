"""Kills turns in which agents are dismissed, and has another process finish them.

``python -m tests.crash.drivers.dismissals FOLDER TRIALS`` prints, as JSON, a report of two turns
that nothing happens to, and of so many that are killed at a statement. Each process is a fork of
this one.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from echelons import Agent, Permissions, Question, Session, Spawn, SqliteCheckpointer
from echelons.checkpoints.coordination.dismissal_ledger import DISMISSAL
from echelons.checkpoints.ledger import build_key
from echelons.testing import Call, ScriptedModel, delegate
from tests.crash.drivers.trials import main
from tests.crash.drivers.trip import Place
from tests.told_lines import get_last, is_said, without_told

MADE = re.compile(r"(scout-[0-9a-f]{8}) is there")


def build_tree(place: Place) -> Agent:
    """Return a head that makes a scout, and dismisses it; somebody else dismisses north."""

    def note(who: str) -> str:
        """Write down who is at work: the same twice is a mistake."""
        place.add("effects", who)
        return f"noted {who}"

    def work(messages: Sequence[BaseMessage]) -> Any:
        task = next(each for each in reversed(messages) if is_said(each))
        if get_last(messages) is task:
            return Call("note", {"who": str(task.text)})
        return f"{task.text} is done"

    def head(messages: Sequence[BaseMessage]) -> Any:
        [*_, task] = [place for place, each in enumerate(messages) if is_said(each)]
        now = messages[task:]
        step = sum(isinstance(each, AIMessage) for each in now)
        turn = str(messages[task].text)
        if turn == "one":
            made: dict[str, Any] = {"role": "scout", "message": "scout in one", "keep": True}
            return [
                [Call("spawn_subordinate", made), delegate("north", "north in one")],
                Call("dismiss_subordinate", {"name": find_scout(messages)}),
                "one is over",
            ][step]
        again = {"subordinate": find_scout(messages), "message": "scout in two"}
        return [
            [
                delegate("north", "north in two"),
                delegate("south", "south in two"),
                Call("call_subordinate", again),
            ],
            "two is over",
        ][step]

    model = ScriptedModel({"head": head, "north": work, "south": work, "scout": work})
    below = [Agent(name, tools=[note]) for name in ("north", "south")]
    permissions = Permissions(spawn=Spawn(tools=("note",)))
    return Agent("head", model=model, tools=[note], subordinates=below, permissions=permissions)


def find_scout(messages: Sequence[BaseMessage]) -> str:
    """Return the name of the scout, as the head was told it."""
    found = [MADE.search(str(each.text)) for each in messages]
    return next((each.group(1) for each in found if each), "nobody")


def live(place: Place, world: str) -> dict[str, Any]:
    """Bring both turns to their end, with a dismissal between them, and return the end."""
    with (
        SqliteCheckpointer(place.database) as saver,
        Session(build_tree(place), saver, thread="t") as session,
    ):
        said = [_turn(session, place, world, "one")]
        done = session.dismiss("head/north", by="anna")
        said.append(_turn(session, place, world, "two"))
        registry = session.registry()
        return {
            "said": said,
            "told": [
                re.sub("scout-[0-9a-f]{8}", "scout", without_told(str(each.text)))
                for each in session.thread_store.get(session.thread_id).messages
                if each.type == "tool"
            ],
            "by": done.dismissal.by,
            "states": sorted(
                [each.name.partition("-")[0], str(each.state)] for each in registry.agents
            ),
            "effects": sorted(place.lines("effects")),
            "dismissals": len(
                saver.ledger.list_keys(build_key(session.thread_id, DISMISSAL.name, ""))
            ),
            "orders": saver.conn.execute(
                "SELECT count(*) FROM events WHERE kind = 'order'"
            ).fetchone()[0],
            "integrity": [each for (each,) in saver.conn.execute("PRAGMA integrity_check")],
        }


def _turn(session: Session, place: Place, world: str, turn: str) -> str:
    result: Any = None
    for _ in range(8):
        result = asyncio.run(_asend(session, turn)) if world == "async" else _send(session, turn)
        if result.status not in ("asking", "paused"):
            break
        if result.questions:
            session.answer({each.id: _answer(place, each) for each in result.questions}).result()
    return str(result.text)


def _answer(place: Place, asked: Question) -> Any:
    """Return what became of a call that was cut short; the effects tell whether it happened."""
    who = asked.value["arguments"]["who"]
    if who in place.lines("effects"):
        return {"outcome": "happened", "result": f"noted {who}"}
    return "run_again"


def _send(session: Session, turn: str) -> Any:
    return session.send(turn, turn_id=turn).result()


async def _asend(session: Session, turn: str) -> Any:
    return await (await session.asend(turn, turn_id=turn)).result()


if __name__ == "__main__":
    main(live, *sys.argv[1:])
