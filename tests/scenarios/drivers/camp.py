"""A head with two branches, one of them with a camp: the tree of the tests of stop and pause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import interrupt

from echelons import Agent, Session
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import get_last


@tool
def look() -> str:
    """Look around."""
    return "nothing"


def team(scripts: dict[str, Any], tools: Sequence[Any] = (look,)) -> Agent:
    """Return a head with north, whose camp has tools, and south."""
    given = {
        "head": [[delegate("north", "go"), delegate("south", "go")], "over"],
        "north": [delegate("camp", "go"), "north is done"],
        "camp": ["camp is done"],
        "south": ["south is done"],
        **scripts,
    }
    north = Agent("north", subordinates=[Agent("camp", tools=tools)])
    return Agent("head", model=ScriptedModel(given), subordinates=[north, Agent("south")])


def told(session: Session, agent: str = "head") -> list[str]:
    """Return what an agent's calls were answered with, in the order of the calls."""
    [found] = [each for each in session.trace().walk() if each.agent == agent]
    messages = session.thread_store.get(found.thread_id).messages
    answers = {each.tool_call_id: each.text for each in messages if isinstance(each, ToolMessage)}
    calls = [each for each in messages if isinstance(each, AIMessage)]
    return [str(answers[call["id"] or ""]) for each in calls for call in each.tool_calls]


def asked(agent: Agent, name: str) -> int:
    """Return how often an agent's model was called."""
    assert isinstance(agent.model, ScriptedModel)
    return len([call for call in agent.model.calls if call.agent == name])


def waiting(*more: Any) -> Agent:
    """Return the team; its camp asks a human."""

    @tool
    def ask() -> str:
        """Ask the human."""
        return f"heard {interrupt('Which way?')}"

    return team({"camp": [Call("ask"), "camp is done"]}, [ask])


def first(step: Callable[..., Any], then: Any) -> Callable[[Sequence[BaseMessage]], Any]:
    def steps(messages: Sequence[BaseMessage]) -> Any:
        return then if isinstance(get_last(messages), ToolMessage) else step(messages)

    return steps
