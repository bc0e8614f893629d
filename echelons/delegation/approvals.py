"""Approvals: whether a call may run, and the decisions of a human about it. Pure.

LangChain's `HumanInTheLoopMiddleware` asks in two forms, and LangGraph's older `HumanInterrupt`
is a third. `find_review` recognises each, and `ToolReview` converts decisions into its answer. Ours
has LangChain's form `tool_approval`, so its answer is a `Decision`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from echelons.delegation.user_answers import UserAnswer
from echelons.errors import InvalidSetting
from echelons.text.input_limits import shorten_repr
from echelons.text.json_schema import find_mismatch

DecisionType: TypeAlias = Literal["approve", "edit", "reject", "respond"]
APPROVAL_TYPE: Final = "tool_approval"
"""The `type` of LangChain's question about one call."""

_SCOPE = {"scope": "give 'thread', or leave it out for this call alone"}
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "approve": _SCOPE,
    "edit": {"edited_action": 'give {"name": the tool, "args": its arguments}', **_SCOPE},
    "reject": {"message": "give the reason as a text, or leave it out", **_SCOPE},
    "respond": {"message": "give the answer as a text"},
}
"""The fields of each type beside the type, and what to give."""

_OLDER_FORM = {
    "approve": ("allow_accept", "accept"),
    "edit": ("allow_edit", "edit"),
    "reject": ("allow_ignore", "ignore"),
    "respond": ("allow_respond", "response"),
}
"""How a `HumanInterrupt` allows each type, and how it names it in the answer."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision:
    """A human's decision on a tool call that waits for one.

    Its JSON is LangChain's, with our field `scope`: an object of these fields. A word stands for a
    decision of that type without more: `"approve"`.

    Attributes:
        type: `"approve"` runs the call; `"edit"` runs it with other arguments; `"reject"` does
            not run it, and `"respond"` answers it in place of the tool.
        message: Of `"reject"`, the reason, if there is one; of `"respond"`, the answer.
        edited_action: Of `"edit"`, the tool and its arguments,
            `{"name": "mail", "args": {"to": "Ann"}}`.
        scope: `"thread"` to decide likewise whenever the same agent makes the same call in the
            thread, unasked; `None` for this call alone. Only for calls that `Permissions` hold, and
            not of `"respond"`.

    Raises:
        InvalidSetting: Its type is unknown, a field is missing, or not one of its type.

    Examples:
        >>> Decision("reject", "not today").to_json()
        {'type': 'reject', 'message': 'not today'}
    """

    type: DecisionType
    message: str | None = None
    edited_action: Mapping[str, Any] | None = None
    scope: Literal["thread"] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or self.type not in _FIELDS:
            self._refuse("type", f"give {_join_choices([*_FIELDS])}")
        remedies, message = _FIELDS[self.type], self.message
        for name in ("message", "edited_action", "scope"):
            if getattr(self, name) is not None and name not in remedies:
                self._refuse(name, f"{self.type!r} has no such field; leave it out")
        if not isinstance(message, str) and (message is not None or self.type == "respond"):
            self._refuse("message", remedies["message"])
        if self.type == "edit" and not _is_action(self.edited_action):
            self._refuse("edited_action", remedies["edited_action"])
        if self.scope not in (None, "thread"):
            self._refuse("scope", remedies["scope"])

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise InvalidSetting(type(self).__name__, name, getattr(self, name), why)

    @classmethod
    def from_json(cls, answer: object) -> Decision:
        """Return the decision that an object or a word stands for.

        Raises:
            InvalidSetting: It stands for none.
        """
        if isinstance(answer, Decision):
            return answer
        values = answer if isinstance(answer, Mapping) else {"type": answer}
        names = [field.name for field in fields(cls)]
        for name in values.keys() - set(names):
            why = f"there is no such field, but {', '.join(names)}"
            raise InvalidSetting(cls.__name__, str(name), values[name], why)
        return cls(**{"type": None, **values})

    def to_json(self) -> dict[str, Any]:
        """Return the decision as a JSON object."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ReviewedCall:
    """A tool call that waits for a decision."""

    tool: str
    arguments: Mapping[str, Any]
    allowed: tuple[str, ...]  # types of decisions
    description: str = ""  # by its graph
    can_be_standing: bool = False  # for the same call in the rest of the thread


@dataclass(frozen=True, slots=True)
class ToolReview:
    """A question about tool calls."""

    calls: tuple[ReviewedCall, ...]  # at least one
    form: Literal["request", "approval", "interrupt"]  # of its value, and of its answer

    def build_resume_value(self, answer: object) -> Any:
        """Return an answer in the form that the asking graph expects.

        The answer is a list with a decision for each call, also under `"decisions"`; or one to
        approve or to reject all. Raises `ValueError` if it is something else, or of a type that a
        call does not take.
        """
        decisions = [
            _read_decision(call, part)
            for call, part in zip(self.calls, self._share_answer(answer), strict=True)
        ]
        if self.form == "request":
            return {"decisions": [decision.to_json() for decision in decisions]}
        if self.form == "approval":
            return decisions[0].to_json()
        return [
            _build_human_response(call, decision)
            for call, decision in zip(self.calls, decisions, strict=True)
        ]

    def _share_answer(self, answer: object) -> Sequence[object]:
        """Return the part of an answer for each call."""
        if isinstance(answer, Mapping) and "decisions" in answer:
            if len(answer) > 1:
                others = ", ".join(repr(field) for field in answer if field != "decisions")
                raise ValueError(f"there is no field {others} beside 'decisions'")
            answer = answer["decisions"]
        tools, count = ", ".join(call.tool for call in self.calls), len(self.calls)
        if isinstance(answer, list | tuple):
            if len(answer) != count:
                why = f"give a decision for each call ({tools}): {count}, not {len(answer)}"
                raise ValueError(why)
            return answer
        kind = _get_type(answer)
        if count > 1 and kind in ("edit", "respond"):
            raise ValueError(f"{kind!r} is for one call; give a list of {count} ({tools})")
        return [answer] * count


def find_review(value: object, schema: Mapping[str, Any] | None = None) -> ToolReview | None:
    """Return the review that an interrupt asks for, or `None` if it asks something else.

    `schema` is the JSON Schema of its answer, if it has one.
    """
    try:
        question = _build_adapter().validate_python(value)
    except ValidationError:
        return None
    if isinstance(question, _Request):
        allowed = {part.action_name: part.allowed_decisions for part in question.review_configs}
        calls = [_build_call(call, allowed.get(call.name)) for call in question.action_requests]
        return ToolReview(tuple(calls), "request") if calls else None
    if isinstance(question, _Approval):
        types, can_be_standing = _list_types(schema or {}), _has_scope(schema or {})
        return ToolReview((_build_call(question, types, can_be_standing),), "approval")
    interrupts = question if isinstance(question, list) else [question]
    calls = [
        ReviewedCall(
            interrupt.action_request.action,
            interrupt.action_request.args,
            tuple(kind for kind, (key, _) in _OLDER_FORM.items() if interrupt.config.get(key)),
            interrupt.description or "",
        )
        for interrupt in interrupts
    ]
    return ToolReview(tuple(calls), "interrupt") if calls else None


def _read_decision(call: ReviewedCall, answer: object) -> Decision:
    kind = _get_type(answer)
    if kind not in call.allowed:
        choices = _join_choices(call.allowed)
        raise ValueError(f"{shorten_repr(kind)} is no decision for {call.tool}; give {choices}")
    decision = Decision.from_json(answer)
    if decision.scope and not call.can_be_standing:
        raise ValueError(f"a decision on {call.tool} is for one call here; leave out 'scope'")
    if decision.edited_action and decision.edited_action["name"] != call.tool:
        other = shorten_repr(decision.edited_action["name"])
        raise ValueError(f"an edit changes the arguments of {call.tool}; it cannot call {other}")
    return decision


def _get_type(answer: object) -> object:
    if isinstance(answer, Decision):
        return answer.type
    return answer.get("type") if isinstance(answer, Mapping) else answer


def _join_choices(choices: Sequence[str]) -> str:
    """Return words as a choice.

    >>> _join_choices(["approve", "edit", "reject"])
    'approve, edit or reject'
    """
    *others, last = choices or ["nothing"]
    return f"{', '.join(others)} or {last}" if others else last


def _is_action(action: object) -> bool:
    if not isinstance(action, Mapping) or action.keys() != {"name", "args"}:
        return False
    return isinstance(action["name"], str) and isinstance(action["args"], Mapping)


def _build_human_response(call: ReviewedCall, decision: Decision) -> dict[str, Any]:
    arguments: Any = decision.message
    if decision.type == "reject" and decision.message:
        other = ", or give 'respond'" if "respond" in call.allowed else ""
        raise ValueError(f"here a 'reject' takes no message; leave it out{other}")
    if decision.edited_action:
        arguments = {"action": decision.edited_action["name"]}
        arguments["args"] = decision.edited_action["args"]
    return {"type": _OLDER_FORM[decision.type][1], "args": arguments}


# The three forms of questions. Of each, what is needed here; it may have more.


class _Call(BaseModel):
    name: str
    args: dict[str, Any]
    description: str = ""


class _Config(BaseModel):
    action_name: str
    allowed_decisions: list[str]


class _Request(BaseModel):
    """LangChain's `HITLRequest`: all calls of one message."""

    action_requests: list[_Call]
    review_configs: list[_Config]


class _Approval(_Call):
    """LangChain's `ToolApprovalRequest`: one call; the schema has the decisions that it takes."""

    type: Literal["tool_approval"]  # as `APPROVAL_TYPE`


class _Action(BaseModel):
    action: str
    args: dict[str, Any]


class _Interrupt(BaseModel):
    """LangGraph's `HumanInterrupt`, asked alone or in a list; the answer is a list."""

    action_request: _Action
    config: dict[str, bool]
    description: str | None = None


@cache
def _build_adapter() -> TypeAdapter[_Request | _Approval | _Interrupt | list[_Interrupt]]:
    return TypeAdapter(_Request | _Approval | _Interrupt | list[_Interrupt])


def _build_call(
    call: _Call, allowed: Sequence[str] | None, can_be_standing: bool = False
) -> ReviewedCall:
    types = tuple(allowed or _FIELDS)
    return ReviewedCall(call.name, call.args, types, call.description, can_be_standing)


def _has_scope(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema of ours lets a decision have a scope."""
    kinds = schema.get("oneOf")
    return isinstance(kinds, list) and any(
        isinstance(kind, Mapping) and "scope" in (kind.get("properties") or {}) for kind in kinds
    )


def _list_types(schema: Mapping[str, Any]) -> list[str]:
    """Return the types of decisions in a schema of one decision, or of a choice of several."""
    several = [*schema.get("discriminator", {}).get("mapping", ())]
    only = schema.get("properties", {}).get("type", {}).get("const")
    return several or ([only] if only else [])


@dataclass(frozen=True)
class GuardedCall:
    """A call that the permissions of an agent have a rule for."""

    thread_id: str  # of the root
    path: str  # of the calling agent
    kind: Literal["tool", "subordinate"]
    name: str  # of the tool or subordinate
    arguments: Mapping[str, Any]  # of the tool, or `message` and `context` of the task
    call_id: str = ""  # in the model's message

    @cached_property
    def digest(self) -> str:
        """A hash of the agent, of what it calls and of the arguments."""
        called = [self.path, self.kind, self.name, dict(self.arguments)]
        text = json.dumps(called, sort_keys=True, default=repr)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ApprovalAnswer(NamedTuple):
    """Whether a call may run: a rule denies it, a human rejects it."""

    outcome: Literal["allowed", "denied", "rejected"]
    decision: Decision | None = None  # of a human
    was_asked: bool = False  # about this call, as no earlier decision held for it

    @property
    def reason(self) -> str:
        """Why the call does not run, for the model."""
        if self.outcome == "denied":
            return "denied: the permissions of this team forbid it"
        reason = self.decision.message if self.decision else None
        return f"rejected by a human: {reason}" if reason else "rejected by a human"

    @property
    def edited_arguments(self) -> Mapping[str, Any] | None:
        """The arguments in place of the model's; `None` if a human has not changed them."""
        action = self.decision.edited_action if self.decision else None
        return action["args"] if action else None


def build_approval_answer(
    kind: Literal["tool", "subordinate"], name: str, answer: ApprovalAnswer
) -> UserAnswer | None:
    """Return a human's approval as its superior reads it, without the call's arguments.

    Examples:
        >>> rejected = ApprovalAnswer("rejected", Decision("reject", "too dear"), was_asked=True)
        >>> build_approval_answer("tool", "pay", rejected)
        UserAnswer(question='May pay run?', answer='reject: too dear', path='')
    """
    decision = answer.decision
    if decision is None or not answer.was_asked:
        return None
    text = f"{decision.type}: {decision.message}" if decision.message else decision.type
    return UserAnswer.shorten(f"May {name} {'run' if kind == 'tool' else 'be given a task'}?", text)


class StandingDecisions(Protocol):
    """The decisions that hold for the same call in the rest of a thread; the ledger keeps them."""

    def find(self, call: GuardedCall, config: Mapping[str, Any]) -> Decision | None:
        """Return the decision that holds for a call of a run, if there is one."""
        ...

    async def afind(self, call: GuardedCall, config: Mapping[str, Any]) -> Decision | None:
        """Async version of `find`."""
        ...

    def keep(self, call: GuardedCall, decision: Decision, config: Mapping[str, Any]) -> None:
        """Keep a decision for the same call, from now on."""

    async def arun(self, work: Callable[[], T], config: Mapping[str, Any]) -> T:
        """Call `keep` in an event loop, and again if the ledger was busy."""
        ...


def build_approval_request(call: GuardedCall, fault: str = "") -> dict[str, Any]:
    """Return the value of the interrupt that asks whether a call may run.

    `fault` is what was wrong with the answer before, if the question is repeated.
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

    `parameters` is the schema of the arguments that an edit may give, `None` if it takes no edit.
    """
    scope = {"const": "thread"}
    kinds: dict[str, dict[str, Any]] = {
        "approve": {"scope": scope},
        "edit": {"scope": scope, "edited_action": None},
        "reject": {"scope": scope, "message": {"type": "string"}},
    }
    definitions: Mapping[str, Any] = {}
    if parameters is None:
        del kinds["edit"]
    else:
        # References lead from the root of a schema.
        arguments = dict(parameters)
        definitions = arguments.pop("$defs", {})
        kinds["edit"]["edited_action"] = {
            "type": "object",
            "properties": {"name": {"const": call.name}, "args": arguments},
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
            for kind, properties in kinds.items()
        ],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind: f"#/oneOf/{place}" for place, kind in enumerate(kinds)},
        },
    }
    if definitions:
        schema["$defs"] = dict(definitions)
    return schema


def parse_decision(call: GuardedCall, schema: Mapping[str, Any], answer: object) -> Decision:
    """Return the decision that answers the question about a call; `ValueError` if it is none."""
    review = find_review(build_approval_request(call), schema)
    if review is None:
        raise ValueError("the arguments of the call cannot be shown")
    value = review.build_resume_value(answer)
    if why := find_mismatch(value, schema):
        raise ValueError(why)
    return Decision.from_json(value)
