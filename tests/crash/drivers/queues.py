"""Kills a host whose subordinates work off queues, and has another process let it go on.

``python -m tests.crash.drivers.queues FOLDER TRIALS`` prints, as JSON, a report of a turn that
nothing happens to, and of one for each of so many trials, with a death at a statement or two. Each
process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from echelons import Agent, Human, Result, Session, SqliteCheckpointer
from echelons.delegation.questions import build_question_id
from echelons.identity.lineage import THREADS_KEY
from echelons.testing import Call, ScriptedModel, delegate, delegate_many
from tests.crash.drivers.trials import main
from tests.crash.drivers.trip import Place
from tests.told_lines import get_last, without_told

ROUNDS = 20
"""How often a turn is taken up at most."""
LENGTH = 3
"""Number of requests of each queue."""


def build_host(place: Place) -> Agent:
    """Return a host that queues calls and requests for people, and messages for an agent."""

    def host(messages: Sequence[BaseMessage]) -> Any:
        replies = [message for message in messages if isinstance(message, AIMessage)]
        if not replies:
            return delegate("clerk", "Begin")
        if len(replies) > 1:
            answers = [message for message in messages if isinstance(message, ToolMessage)]
            return " | ".join(without_told(str(answer.text)) for answer in answers)
        [thread] = replies[0].response_metadata[THREADS_KEY].values()
        named = {"answers": build_question_id(thread)}
        numbers = range(1, LENGTH + 1)
        return [
            *(delegate("anna", f"Sign paper {number}") for number in numbers),
            *(Call("call_subordinate", {"message": f"File {n}", **named}) for n in numbers),
            delegate_many(*(delegate("bert", f"Stamp paper {number}") for number in numbers)),
        ]

    def clerk(messages: Sequence[BaseMessage]) -> str:
        task = without_told(str(get_last(messages).text))
        place.add("thoughts", task)
        return f"{task}: done"

    model = ScriptedModel({"host": host, "clerk": clerk})
    below = [Agent("clerk"), Human("anna"), Human("bert")]
    return Agent("host", model=model, subordinates=below)


def live(place: Place, world: str) -> dict[str, Any]:
    """Bring the turn to its end, whatever was done before, and return what is there then."""
    with SqliteCheckpointer(place.database) as saver:
        session = Session(build_host(place), saver, thread="queues")
        for _ in range(ROUNDS):
            result = take_up(session, world)
            if result.finished:
                return look(session, place, result)
    raise AssertionError("the queues come to no end")


def take_up(session: Session, world: str) -> Result:
    """Answer what is asked, or submit the turn, which goes on or begins."""
    answers = {each.id: f"{each.value.splitlines()[0]}: yes" for each in session.inbox()}
    if world == "sync":
        run = session.answer(answers) if answers else session.send("go", turn_id="t")
        return run.result()

    async def take_up_async() -> Result:
        run = await (session.aanswer(answers) if answers else session.asend("go", turn_id="t"))
        return await run.result()

    return asyncio.run(take_up_async())


def look(session: Session, place: Place, result: Result) -> dict[str, Any]:
    """Return what there is when all is done."""
    thoughts = place.lines("thoughts")
    return {
        "text": result.text,
        "requests": {
            each.agent: [[request.task, request.status] for request in each.requests]
            for each in session.trace().subordinates
        },
        "links": sorted(
            {str(link.state) for link in session.thread_store.verify(session.thread_id)}
        ),
        "thoughts": sorted(set(thoughts)),
        "again": len(thoughts) - len(set(thoughts)),
    }


if __name__ == "__main__":
    main(live, *sys.argv[1:])
