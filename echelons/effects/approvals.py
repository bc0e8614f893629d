"""Approvals: the question whether a call may run, and the decisions that hold for a whole thread.

The question has LangChain's form `tool_approval`, so its answer is a `Decision`. The functions are
pure; decisions for a thread are kept by an implementation of `StandingDecisions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from echelons.effects.human_review import APPROVAL_TYPE, Decision, find_review
from echelons.messaging.user_answer import UserAnswer
from echelons.text.json_schema import find_mismatch

T = TypeVar("T")


@dataclass(frozen=True)
class GuardedCall:
    """A call that the permissions of an agent have a rule for.

    Attributes:
        thread_id: The root's thread.
        path: Path of the calling agent.
        kind: Whether it calls a tool, or gives a subordinate a task.
        name: Name of the tool or subordinate.
        arguments: The tool's arguments, or `message` and `context` of the task.
        call_id: The call's id in the model's message.
    """

    thread_id: str
    path: str
    kind: Literal["tool", "subordinate"]
    name: str
    arguments: Mapping[str, Any]
    call_id: str = ""

    @cached_property
    def digest(self) -> str:
        """A hash of the agent, of what it calls and of the arguments."""
        called = [self.path, self.kind, self.name, dict(self.arguments)]
        text = json.dumps(called, sort_keys=True, default=repr)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ApprovalAnswer(NamedTuple):
    """What came of asking whether a call may run.

    Attributes:
        verdict: Whether it may; `"denied"` by a rule, `"rejected"` by a human.
        decision: The decision of a human, if there was one.
        was_asked: Whether a human was asked about this call, and no earlier decision held for it.
    """

    verdict: Literal["allowed", "denied", "rejected"]
    decision: Decision | None = None
    was_asked: bool = False

    @property
    def reason(self) -> str:
        """Why the call does not run, for the model."""
        if self.verdict == "denied":
            return "denied: the permissions of this team forbid it"
        said = self.decision.message if self.decision else None
        return f"rejected by a human: {said}" if said else "rejected by a human"

    @property
    def edited_arguments(self) -> Mapping[str, Any] | None:
        """The arguments in place of the model's; `None` if a human has not changed them."""
        action = self.decision.edited_action if self.decision else None
        return action["args"] if action else None


def build_approval_answer(
    kind: Literal["tool", "subordinate"], name: str, answer: ApprovalAnswer
) -> UserAnswer | None:
    """Return what a superior is told of an approval, without the arguments of the call.

    `None` if nobody was asked.

    Examples:
        >>> rejected = ApprovalAnswer("rejected", Decision("reject", "too dear"), was_asked=True)
        >>> build_approval_answer("tool", "pay", rejected)
        UserAnswer(question='May pay run?', answer='reject: too dear', path=())
    """
    decision = answer.decision
    if decision is None or not answer.was_asked:
        return None
    said = f"{decision.type}: {decision.message}" if decision.message else decision.type
    return UserAnswer.shorten(f"May {name} {'run' if kind == 'tool' else 'be given a task'}?", said)


class StandingDecisions(Protocol):
    """The decisions that hold for the same call in the rest of a thread.

    Its methods raise `StorageError` if the ledger could not be read or written.
    """

    def find(self, call: GuardedCall, config: Mapping[str, Any]) -> Decision | None:
        """Return the decision that holds for a call of a run, if there is one."""
        ...

    async def afind(self, call: GuardedCall, config: Mapping[str, Any]) -> Decision | None:
        """Async version of `find`."""
        ...

    def keep(self, call: GuardedCall, decision: Decision, config: Mapping[str, Any]) -> None:
        """Keep a decision for the same call, from now on.

        Raises:
            LeaseLost: Another process runs the thread now.
        """

    async def arun(self, work: Callable[[], T], config: Mapping[str, Any]) -> T:
        """Call `keep` in an event loop, and again if the ledger was busy."""
        ...


def build_approval_request(call: GuardedCall, fault: str = "") -> dict[str, Any]:
    """Return the value of the interrupt that asks whether a call may run.

    `fault` is what was wrong with the answer before, which is asked for again.
    """
    what = "this call run" if call.kind == "tool" else "this subordinate be given this task"
    again = f" The answer before was refused: {fault}." if fault else ""
    return {
        "type": APPROVAL_TYPE,
        "tool_call_id": call.call_id,
        "name": call.name,
        "args": dict(call.arguments),
        "description": f"May {what}?{again}",
    }


def build_approval_schema(
    call: GuardedCall, parameters: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the JSON Schema of the decisions on a call.

    Args:
        call: The call.
        parameters: The schema of the arguments that an edit may give; `None` if it takes no edit.
    """
    scope = {"const": "thread"}
    ways: dict[str, dict[str, Any]] = {
        "approve": {"scope": scope},
        "edit": {"scope": scope, "edited_action": None},
        "reject": {"scope": scope, "message": {"type": "string"}},
    }
    definitions: Mapping[str, Any] = {}
    if parameters is None:
        del ways["edit"]
    else:
        # References lead from the root of a schema.
        own = dict(parameters)
        definitions = own.pop("$defs", {})
        ways["edit"]["edited_action"] = {
            "type": "object",
            "properties": {"name": {"const": call.name}, "args": own},
            "required": ["name", "args"],
            "additionalProperties": False,
        }
    schema: dict[str, Any] = {
        "title": "Decision",
        "oneOf": [
            {
                "type": "object",
                "properties": {"type": {"const": kind}, **properties},
                "required": ["type", *(["edited_action"] if kind == "edit" else [])],
                "additionalProperties": False,
            }
            for kind, properties in ways.items()
        ],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind: f"#/oneOf/{place}" for place, kind in enumerate(ways)},
        },
    }
    if definitions:
        schema["$defs"] = dict(definitions)
    return schema


def parse_decision(call: GuardedCall, schema: Mapping[str, Any], answer: object) -> Decision:
    """Return the decision that answers the question about a call.

    Raises:
        ValueError: The answer is none, or does not fit the schema.
    """
    review = find_review(build_approval_request(call), schema)
    if review is None:
        raise ValueError("the arguments of the call cannot be shown")
    value = review.build_resume_value(answer)
    if why := find_mismatch(value, schema):
        raise ValueError(why)
    return Decision.from_json(value)
