"""`DismissalFeature`: the tool `dismiss`, and the guard that admits no dismissed agent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.messages import ToolCall, ToolMessage
from pydantic import BaseModel, Field, ValidationError

from echelons.checkpoints.coordination.dismissal_ledger import (
    DISMISSAL,
    DismissalLog,
    commit_dismissal,
    find_dismissal,
)
from echelons.checkpoints.coordination.records import get_root_checkpoint
from echelons.checkpoints.ledger import Transaction
from echelons.checkpoints.run_config import is_embedded
from echelons.checkpoints.thread_events import WriteLocation
from echelons.delegation.calls import FanOutCall
from echelons.delegation.spawned_agents import DISMISSED
from echelons.features.feature import AgentHooks, BuiltIn, Feature, GateScope, Place, ToolScope
from echelons.guards.dismissals import NO_DISMISSALS, Dismissal, Dismissals, get_dismissals
from echelons.guards.gate import Halt, Step, StepGuard, get_gate
from echelons.identity.lineage import ROSTER_KEY, require_identity
from echelons.models.notices import mark_notice
from echelons.nodes.planning.call_arguments import mend_name, validate_arguments
from echelons.nodes.planning.repeated_calls import build_error_update
from echelons.plans import Plan, build_step
from echelons.tree.names import DISMISS_SUBORDINATE, PATH_SEPARATOR

if TYPE_CHECKING:
    from echelons.nodes.planning.tool_calls import ReplyCalls


class DismissalGuard(StepGuard):
    """The dismissals that one run sees."""

    name: ClassVar[str] = "dismissal"

    def __init__(self, run: GateScope) -> None:
        turn = run.turn
        self.dismissals: Dismissals = NO_DISMISSALS
        # Keys of dismissals that the branch does not see, as it began before them.
        self.hidden = turn.hidden_dismissals if turn else frozenset[str]()
        # A tree that a tool runs reports none.
        has_listener = turn and turn.answer_mark and not is_embedded(run.configurable)
        self._listener = turn.note_dismissals if turn and has_listener else None
        self._run = run
        self._log = DismissalLog(run.thread_id)

    def refresh(self, open_: Transaction) -> Callable[[], object] | None:
        """Read the dismissals that are new."""
        self.dismissals, new = self._log.refresh(open_, self.hidden)
        return partial(self._listener, new) if new and self._listener else None

    def find_order(self, path: str, step: Step | None) -> Halt | None:
        """Return the dismissal of an agent; one that may finish its request begins no other."""
        if self.dismissals is NO_DISMISSALS:
            return None
        dismissal = self.dismissals.find(path)
        if dismissal is None or (dismissal.graceful and step is not Step.SUBORDINATE):
            return None
        return Halt("dismissed", dismissal.why, finishes=dismissal.graceful)

    def list_closed(self, path: str) -> Collection[str]:
        """Return the paths below an agent that were dismissed."""
        return self.dismissals.list_below(path)

    def read_order(self, open_: Transaction, path: str, *, is_fresh: bool) -> Halt | None:
        """Return the dismissal that an agent is under in an open transaction."""
        if is_fresh:
            dismissal = self.dismissals.find(path)
        else:
            dismissal = find_dismissal(open_, self._run.thread_id, path, self.hidden)
        return Halt("dismissed", dismissal.why) if dismissal and not dismissal.graceful else None

    def dismiss(self, name: str, config: Mapping[str, Any]) -> Sequence[str]:
        """Dismiss a subordinate of an agent, and all below it, for good.

        Return the tool calls of theirs that were under way, each in a few words.
        """
        run, superior = self._run, str(config["metadata"].get("agent_path", ""))
        path, after = (
            f"{superior}{PATH_SEPARATOR}{name}",
            get_root_checkpoint(config["configurable"]),
        )
        where = WriteLocation(run.thread_id, "", after, run.identity.thread_id, path)
        fence = run.turn.fence if run.turn else None
        # Not within the lock of the gate, which its listeners take.
        new = Dismissal(path, by=superior)
        done = commit_dismissal(run.ledger, where, new, self.hidden, fence)
        return [str(call) for call in done.cut_calls]


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
    config = reply.scope.config
    path = PATH_SEPARATOR.join(require_identity(config).path)
    if name in get_dismissals(get_gate(config)).list_below(path):
        return f"{name!r} was dismissed already"
    return reply.find_unknown(name)


class DismissalHooks(AgentHooks):
    """The tool of an agent that may make subordinates, and dismiss any."""

    tools = (DismissSubordinate(),)


class DismissalFeature(Feature):
    """Dismissals by an agent."""

    name: ClassVar[str] = "dismissal"
    records = (DISMISSAL,)

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the tool of an agent that may make subordinates."""
        return DismissalHooks() if place.can_call and place.agent.permissions.spawn else None

    def guard(self, run: GateScope) -> StepGuard:
        """Return the dismissals of a run."""
        return DismissalGuard(run)


FEATURE = DismissalFeature()
