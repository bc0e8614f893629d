"""A request to a model begins with the one before, so that a cache of its provider serves it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import messages_to_dict

from echelons import Agent, Permissions, Session
from echelons.testing import Call, ScriptedModel, delegate, report


def look(query: str) -> str:
    """Look something up."""
    return f"found {query}"


@pytest.mark.parametrize("agent", ["head", "mid", "low"])
def test_request_begins_with_the_request_before(agent: str) -> None:
    model = ScriptedModel(
        {
            "head": [
                delegate("mid", "find it"),
                Call("ask", {"question": "Which one?"}),
                [delegate("mid", "the first"), delegate("side", "help")],
                "done",
            ],
            "mid": [
                [delegate("low", "find it"), Call("look", {"query": "x"})],
                Call("send_message", {"to": "superior", "message": "half done"}),
                Call("ask", {"question": "Which one?"}),
                report("partial", "half of it", reason="no time"),
            ],
            "low": [Call("look", {"query": "y"}), "it is y"],
            "side": ["helped"],
        }
    )
    low = Agent("low", tools=[look], permissions=Permissions(contact_user=True))
    mid = Agent("mid", "Finds things", tools=[look], subordinates=[low], prompt="Be brief.")
    head = Agent("head", model=model, subordinates=[mid, Agent("side")])
    with Session(head, ":memory:") as session:
        for task in ("first", "second"):
            done = session.send(task).result()
            while done.questions:
                done = session.answer(done.questions[0].id, "the first").result()

    calls = [call for call in model.calls if call.agent == agent]
    assert len(calls) >= 4
    for before, after in pairwise(calls):
        assert after.tools == before.tools
        earlier, later = _dump(before), _dump(after)
        assert later[: len(earlier)] == earlier


def _dump(call: Any) -> list[Any]:
    return messages_to_dict(list(call.messages))
