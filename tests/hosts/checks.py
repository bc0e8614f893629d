"""What holds for every framework, in either direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from echelons.testing import Call, ScriptedModel
from tests.hosts.trees import LEVELS, build_tree

if TYPE_CHECKING:
    from tests.hosts.conftest import Visit

ANSWERED = '{"name":"Ibis, breakfast: yes"}'
LIKE_AN_AGENT = {
    "task",
    "message",
    "tool_call",
    "tool_result",
    "question",
    "answer",
    "response",
}
"""Kinds of events of a guest that is an agent."""
GIVEN = 'Breakfast? {"city": "Rome", "nights": 2}'


def check_host(visit: Visit, host: str, *, asked: str = GIVEN) -> dict[str, Any]:
    """Let a tree inside a host ask, answer in another process, and return what came of it."""
    first = visit(host=host)
    [(question, text)] = first["questions"].items()
    assert text == asked

    last = visit({question: "yes"}, host=host)

    assert last["questions"] == {}
    assert last["said"][-1] == "Have a nice trip."
    # The host's stream has the tokens of every level.
    assert last["streamed"] == LEVELS
    return last


def check_two_calls(visit: Visit, host: str, tool: str = "travel") -> None:
    """Let two calls of a tree ask at once, and answer both in another process."""
    questions = visit(host=host)["questions"]
    assert len(questions) == 2
    answers = {key: "Roman" if "Rome" in asked else "none" for key, asked in questions.items()}

    last = visit(answers, host=host)

    assert last["tools"] == [
        [tool, '{"name":"Ibis, breakfast: Roman"}'],
        [tool, '{"name":"Ibis, breakfast: none"}'],
    ]


def check_guest(visit: Visit, guest: str, *, asked: str = "Breakfast? Rome") -> dict[str, Any]:
    """Let a guest on the third level ask, answer in another process, and return both visits."""
    first = visit(guest=guest)
    [(question, told)] = first["questions"].items()
    assert told == [asked, ["head", "planner", "guest"]]

    last = visit({question: "yes"}, guest=guest)

    assert last["questions"] == {}
    # What runs inside of the guest has no path of its own.
    assert first["paths"] == last["paths"] == ["head/planner/guest"]
    return {**last, "streamed": {*first["streamed"], *last["streamed"]}}


def check_wrong_arguments(build: Callable[[Any, Any], Any]) -> None:
    """Let the model of a host call a tree with arguments that are not of its contract.

    Args:
        build: Builds the host of a model and the tool.
    """
    model = ScriptedModel([Call("travel", {"town": "Rome"}), "I see."])
    state = build(model, build_tree().as_tool()).invoke({"messages": [("user", "Rome")]})

    [told] = [each for each in state["messages"] if each.type == "tool"]
    assert told.status == "error"
    assert "city: Field required" in told.text
