"""`dismiss_subordinate`: it changes nothing in the world, so no journal is kept of its calls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolCall, ToolMessage
from pydantic import BaseModel, Field, ValidationError

from echelons.delegation.calls import FanOutCall
from echelons.delegation.roster import DISMISSED
from echelons.features.feature import BuiltIn, ToolScope
from echelons.guards.gate import get_gate
from echelons.identity.lineage import ROSTER_KEY
from echelons.models.door.notices import mark_notice
from echelons.nodes.planning.refused_calls import build_error_update
from echelons.nodes.planning.tolerant_arguments import mend_name, validate_arguments
from echelons.plans import Plan, build_step
from echelons.tree.names import DISMISS_SUBORDINATE

if TYPE_CHECKING:
    from echelons.nodes.planning.tool_calls import ReplyCalls


class DismissSubordinateArgs(BaseModel):
    """Arguments of `dismiss_subordinate`."""

    name: str = Field(min_length=1)


class DismissSubordinate(BuiltIn):
    """The tool that dismisses a subordinate, with all below it."""

    name, arguments = DISMISS_SUBORDINATE, DismissSubordinateArgs
    is_silent = True

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it."""
        return self._describe({"name": {"type": "string"}}, ["name"])

    def mend_names(self, arguments: Mapping[str, Any], reply: ReplyCalls) -> dict[str, Any] | None:
        """Return the arguments with the name of the subordinate that is meant."""
        return mend_name(arguments, "name", *reply.callable_agents)

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Take a call; return why it is refused, if it is."""
        wanted = validate_arguments(DismissSubordinateArgs, call["args"])
        why = wanted if isinstance(wanted, str) else _find_fault(wanted.name, reply)
        why = why or super().accept(call, reply)
        reply.must_wait |= not why
        return why

    def check_whole(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Refuse to dismiss a subordinate that the same reply calls."""
        parts = [
            part
            for request in reply.requests
            for part in (request.parts if isinstance(request, FanOutCall) else (request,))
        ]
        name = call["args"]["name"]
        if any(part.subordinate == name for part in parts):
            return f"this message gives {name!r} a task; dismiss it when it has answered"
        return ""

    def execute(self, call: ToolCall, scope: ToolScope) -> Plan[dict[str, Any]]:
        """Dismiss a subordinate; a call that is made again, after a crash, changes nothing."""
        try:
            name = DismissSubordinateArgs.model_validate(call["args"]).name
        except ValidationError as error:
            return build_error_update(call, f"the arguments are not valid: {error}")
        if scope.refusal:
            return dict(scope.refusal.build_update(False))
        text, gate = f"{name} is dismissed, with all below it", get_gate(scope.config)
        dismiss = partial(gate.guards["dismissal"].dismiss, name, scope.config)
        if cut := (yield build_step(dismiss, gate.arun)):
            text = f"{text}; what came of these calls is not known: {', '.join(cut)}"
        answer = ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"])
        answer = mark_notice(answer)
        metadata = {**answer.response_metadata, ROSTER_KEY: {name: DISMISSED.stored()}}
        return {"messages": [answer.model_copy(update={"response_metadata": metadata})]}


def _find_fault(name: str, reply: ReplyCalls) -> str:
    """Return why a subordinate cannot be dismissed; empty if it can."""
    if name == reply.tools.name:
        return "you cannot dismiss yourself; end your task with an answer instead"
    if reply.spawns and name in reply.spawns.dismissed:
        return f"{name!r} was dismissed already"
    return reply.find_unknown(name)
