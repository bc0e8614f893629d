"""The tree that other frameworks are hosts of: three levels, of which the third asks the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from pydantic import BaseModel

from echelons import Agent, Contract, Permissions
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
    is_own = isinstance(last, ToolMessage) and last.name in ("call_subordinate", "ask_user")
    return without_told(last.text) if is_own else ""
