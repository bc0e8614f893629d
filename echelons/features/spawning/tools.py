"""`spawn_subordinate`: its calls become requests when a reply is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolCall

from echelons.delegation.spawned_agents import MAX_ROLE
from echelons.features.feature import BuiltIn
from echelons.guards.spawn import Spawn
from echelons.nodes.planning.budget_field import BUDGET_PROPERTY
from echelons.nodes.planning.spawn_plan import SpawnSubordinateArgs, accept_spawn
from echelons.tree.names import SPAWN_SUBORDINATE

if TYPE_CHECKING:
    from echelons.nodes.planning.tool_calls import ReplyCalls


class SpawnSubordinate(BuiltIn):
    """The tool that makes a subordinate and gives it its first task.

    Args:
        rules: What the agent may make.
        contact_user: Whether it may ask the user past its superior.
        has_budget: Whether it has a budget, of which it may grant a part.
    """

    name, arguments = SPAWN_SUBORDINATE, SpawnSubordinateArgs
    is_executed = False

    def __init__(self, rules: Spawn, contact_user: bool, *, has_budget: bool = False) -> None:
        self._rules = rules
        self._contact_user = contact_user
        self._has_budget = has_budget

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it."""
        rules = self._rules
        properties: dict[str, Any] = {
            "role": {"type": "string", "maxLength": MAX_ROLE},
            "message": {"type": "string"},
        }
        if rules.profiles:
            properties["profile"] = {"type": "string", "enum": [*rules.profiles]}
        if rules.tools:
            names = {"type": "string", "enum": [*rules.tools]}
            properties["tools"] = {"type": "array", "items": names}
        if self._contact_user:
            properties["contact_user"] = {"type": "boolean", "default": False}
        properties["kind"] = {
            "type": "string",
            "enum": [*rules.kinds],
            "default": rules.kinds[0],
        }
        if "mortal" in rules.kinds:
            properties["keep"] = {"type": "boolean", "default": False}
        if self._has_budget:
            properties["budget"] = BUDGET_PROPERTY
        return self._describe(properties, ["role", "message"])

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Add the request with which the new subordinate begins."""
        return accept_spawn(call, call["args"], reply)
