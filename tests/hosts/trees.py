"""Trees of three levels: one whose third asks the user, one whose third is somebody else's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import interrupt
from pydantic import BaseModel

from echelons import Agent, Contract, Permissions, subordinate
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import without_told

PURPOSE = "Finds a hotel"
LEVELS = ["travel", "travel/planner", "travel/planner/clerk"]


class Query(BaseModel):
    """What the tree is asked."""

    city: str
    nights: int = 1


class Hotel(BaseModel):
    """What the tree answers."""

    name: str


def build_tree(*, takes_messages: bool = False) -> Agent:
    """Return the tree, with a contract.

    Args:
        takes_messages: Whether it is given a conversation of its host's, in words, instead of the
            fields of its input.
    """
    contract = Contract(input=None if takes_messages else Query, output=Hotel)
    asks = Permissions(contact_user=True)
    clerk = Agent("clerk", permissions=asks)
    planner = Agent("planner", subordinates=[clerk], permissions=asks)
    return Agent(
        "travel",
        PURPOSE,
        model=ScriptedModel({"travel": _travel, "planner": _planner, "clerk": _clerk}),
        subordinates=[planner],
        permissions=asks,
        contract=contract,
    )


def build_tree_around(guest: Any) -> Agent:
    """Return a tree whose third level is a graph, under the name `guest`, with a contract."""

    def head(messages: Sequence[BaseMessage]) -> Any:
        return _find_answer(messages) or delegate("planner", _get_task(messages))

    def planner(messages: Sequence[BaseMessage]) -> Any:
        return _find_answer(messages) or Call("guest", {"city": _get_task(messages), "nights": 2})

    contract = Contract(input=Query, output=Hotel)
    member = subordinate(guest, name="guest", description=PURPOSE, contract=contract)
    model = ScriptedModel({"head": head, "planner": planner})
    return Agent("head", model=model, subordinates=[Agent("planner", subordinates=[member])])


def ask_for_breakfast(city: str) -> str:
    """Ask the user."""
    return f"breakfast: {interrupt(f'Breakfast? {city}')}"


def find_hotel(messages: Sequence[BaseMessage]) -> Any:
    """Ask the user with a tool, then answer with a hotel: the script of somebody else's agent."""
    answers = [each.text for each in messages if each.type == "tool" and "breakfast" in each.text]
    if answers:
        return Hotel(name=f"Ibis, {answers[-1]}").model_dump_json()
    return Call("ask_for_breakfast", {"city": "Rome"})


def _travel(messages: Sequence[BaseMessage]) -> Any:
    if answer := _find_answer(messages):
        return Hotel(name=answer).model_dump_json()
    return delegate("planner", _get_task(messages))


def _planner(messages: Sequence[BaseMessage]) -> Any:
    return _find_answer(messages) or delegate("clerk", _get_task(messages))


def _clerk(messages: Sequence[BaseMessage]) -> Any:
    if answer := _find_answer(messages):
        return f"Ibis, breakfast: {answer}"
    return Call("ask_user", {"question": f"Breakfast? {_get_task(messages)}"})


def _get_task(messages: Sequence[BaseMessage]) -> str:
    return next(each.text for each in reversed(messages) if each.type == "human")


def _find_answer(messages: Sequence[BaseMessage]) -> str:
    """Return what was answered to an agent's own call; a host may show its calls as well."""
    last = messages[-1]
    is_own = isinstance(last, ToolMessage) and last.name in (
        "call_subordinate",
        "ask_user",
        "guest",
    )
    return without_told(last.text) if is_own else ""
