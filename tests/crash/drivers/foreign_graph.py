"""Kills a turn in which somebody else's graph asks, and has another process finish it.

``python -m tests.crash.drivers.foreign_graph FOLDER TRIALS`` prints, as JSON, a report of a turn
that nothing happens to, and of so many that are killed at a statement. Each process is a fork of
this one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from echelons import Agent, Result, Session, SqliteCheckpointer
from echelons.testing import ScriptedModel, delegate
from tests.crash.drivers.trials import main
from tests.crash.drivers.trip import Place
from tests.told_lines import get_last, without_told


def build_tree(place: Place) -> Agent:
    """Return three levels, the lowest of which is a graph that asks at two of its nodes."""

    def ask(question: str) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{question} {interrupt(question)}")]}

    def note(state: MessagesState) -> dict[str, Any]:
        place.add("noted", str(state["messages"][-1].text))
        return {}

    def tell(state: MessagesState) -> dict[str, Any]:
        said = [str(each.text) for each in state["messages"] if each.type == "ai"]
        return {"messages": [AIMessage(" / ".join(said))]}

    builder = StateGraph(MessagesState)
    builder.add_node("where", lambda state: ask("where?"))
    builder.add_node("note", note)
    builder.add_node("when", lambda state: ask("when?"))
    builder.add_node("tell", tell)
    for first, second in pairwise((START, "where", "note", "when", "tell", END)):
        builder.add_edge(first, second)

    def pass_on(name: str) -> Callable[[Sequence[BaseMessage]], Any]:
        return lambda said: (
            delegate(name, "go") if get_last(said).type == "human" else str(get_last(said).text)
        )

    model = ScriptedModel({"head": pass_on("mid"), "mid": pass_on("guide")})
    mid = Agent("mid", subordinates=[builder.compile(name="guide")])
    return Agent("head", model=model, subordinates=[mid])


def live(place: Place, world: str) -> dict[str, Any]:
    """Bring the turn to its end, and return what came of it."""
    with (
        SqliteCheckpointer(place.database) as saver,
        Session(build_tree(place), saver, thread="t") as session,
    ):
        result = _run(session, world)
        while result.questions:
            for each in result.questions:
                place.add("asked", each.id)
            given = {each.id: f"{each.value} yes" for each in result.questions}
            result = _run(session, world, given)
        return {
            "said": without_told(result.text),
            "asked": len({*place.lines("asked")}),
            "noted": sorted({*place.lines("noted")}),
            "left": len(session.inbox()),
            "threads": len(session.thread_store.verify(session.thread_id)),
            "integrity": [each for (each,) in saver.conn.execute("PRAGMA integrity_check")],
        }


def _run(session: Session, world: str, answers: dict[str, Any] | None = None) -> Result:
    if world == "async":
        return asyncio.run(_arun(session, answers))
    return (session.answer(answers) if answers else session.send("go", turn_id="1")).result()


async def _arun(session: Session, answers: dict[str, Any] | None) -> Result:
    if answers:
        return await (await session.aanswer(answers)).result()
    return await (await session.asend("go", turn_id="1")).result()


if __name__ == "__main__":
    main(live, *sys.argv[1:])
