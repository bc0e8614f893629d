"""The built-in tools of a level: delegation, reports and questions.

Their arguments are pydantic models; the functions build the JSON schemas bound to a chat
model. The nodes handle the calls themselves, so no tool has a body.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    model_validator,
)

from echelons.delegation.agent_specification import MAX_ROLE
from echelons.delegation.contract import DelegationTool, SubordinateTool, get_inputs
from echelons.delegation.join_policies import JOIN_NAMES
from echelons.delegation.request import Status, render_input
from echelons.errors import InvalidInput, InvalidSetting
from echelons.guards.budget import UNITS, Budget, store_amounts
from echelons.guards.spawn import Spawn, SpawnedKind
from echelons.messaging.agent_question import (
    AgentQuestion,
    find_default_fault,
    find_question_fault,
)
from echelons.messaging.mail import check_mail_text
from echelons.prompts import fill_text, load_tool_texts
from echelons.text.input_limits import check_context
from echelons.text.sanitize import join_printable
from echelons.tree.members import Member, collect_capabilities
from echelons.tree.names import (
    ASK,
    CALL_SUBORDINATE,
    DELEGATE_MANY,
    DISMISS_SUBORDINATE,
    PIN,
    READ_RESULT,
    RECALL,
    REPORT,
    SEND_MESSAGE,
    SPAWN_SUBORDINATE,
)
from echelons.tree.roster import RosterEntry, render_roster

MAX_SHOWN_SIBLINGS = 32
"""Most names of agents beside it that an agent's model is shown."""
MAX_DEADLINE_SECONDS = 366 * 24 * 3600
"""Latest deadline of a question to the user, in seconds from now: a year."""
MAX_SPAWN_MESSAGE = 64 * 1024
"""Most bytes of the first task of a spawned agent."""
MAX_REQUESTS = 256
"""Most requests of one call, so that a model's slip does not start ten thousand agents."""


BUDGET_PROPERTY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "tokens": {"type": "integer", "minimum": 1},
        "money": {"type": "string"},
        "calls": {"type": "integer", "minimum": 1},
        "tool_calls": {"type": "integer", "minimum": 1},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
    },
}


def _check_context(given: dict[str, Any] | None) -> dict[str, Any]:
    try:
        return check_context(given, "the context")
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def _check_budget(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if not given:
        return None
    try:
        if unknown := given.keys() - set(UNITS):
            raise ValueError(f"there is no unit {min(unknown)!r}, but {', '.join(UNITS)}")
        return store_amounts(Budget(**given).amounts)
    except InvalidSetting as error:
        raise ValueError(f"{error.setting}: {error.why}") from error


def _check_message(text: str) -> str:
    try:
        return check_mail_text(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def _write_result(value: Any) -> Any:
    """Return a result as text: many models report a list or a number as what it is."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _check_role(role: str) -> str:
    """Return a role in one line, which must say something."""
    if not (said := join_printable(role)):
        raise ValueError("say in a few words what it is for")
    return said


def _check_spawn_message(text: str) -> str:
    if (size := len(text.encode(errors="replace"))) > MAX_SPAWN_MESSAGE:
        raise ValueError(f"{size} bytes, and at most {MAX_SPAWN_MESSAGE}; shorten it")
    return text


def _read_reset(given: Any) -> Any:
    """Return an argument, `False` for one that is null: some models name every argument."""
    return False if given is None else given


def _read_wait(given: Any) -> Any:
    return True if given is None else given


GivenBudget: TypeAlias = Annotated[dict[str, Any] | None, AfterValidator(_check_budget)]
"""What a call grants, by unit; validated, it is what is stored of it."""


class CallSubordinateArgs(BaseModel):
    """Arguments of `call_subordinate`."""

    message: str = Field(min_length=1)
    subordinate: str | None = None
    reset: Annotated[bool, BeforeValidator(_read_reset)] = False
    answers: str | None = None
    context: Annotated[dict[str, Any] | None, AfterValidator(_check_context)] = None
    profile: str | None = None
    input: dict[str, Any] | None = None
    budget: GivenBudget = None

    @model_validator(mode="before")
    @classmethod
    def _write_message(cls, given: Any) -> Any:
        """Add the message that an input is."""
        if isinstance(given, dict) and not given.get("message"):
            fields = given.get("input")
            return {**given, "message": render_input(fields)} if isinstance(fields, dict) else given
        return given


class SpawnSubordinateArgs(BaseModel):
    """Arguments of `spawn_subordinate`."""

    role: Annotated[str, Field(max_length=MAX_ROLE), AfterValidator(_check_role)]
    message: Annotated[str, Field(min_length=1), AfterValidator(_check_spawn_message)]
    profile: str | None = None
    tools: list[str] | None = None
    contact_user: StrictBool = False
    kind: SpawnedKind | None = None
    keep: StrictBool = False
    budget: GivenBudget = None


class DismissSubordinateArgs(BaseModel):
    """Arguments of `dismiss_subordinate`."""

    name: str = Field(min_length=1)


class DelegateManyArgs(BaseModel):
    """Arguments of `delegate_many`."""

    requests: list[CallSubordinateArgs] = Field(min_length=1, max_length=MAX_REQUESTS)
    join: Any = "all"
    n: Any = None
    budget: GivenBudget = None


class ReadResultArgs(BaseModel):
    """Arguments of `read_result`."""

    id: str = Field(min_length=1)
    offset: int = Field(default=0, ge=0)


class ReportArgs(BaseModel):
    """Arguments of `report`."""

    status: Status
    result: Annotated[str, BeforeValidator(_write_result)] = ""
    confidence: float | None = Field(default=None, ge=0.0, le=1.0)
    reason: str = ""


class AskSuperiorArgs(BaseModel):
    """Arguments of `ask_superior`."""

    question: str
    choices: list[str] | None = None
    answer_schema: dict[str, Any] | None = Field(default=None, alias="schema")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if fault := find_question_fault(self.question, self.choices, self.answer_schema):
            raise ValueError(fault)
        return self

    def build_question(self) -> AgentQuestion:
        """Return the question."""
        choices = tuple(dict.fromkeys(self.choices or ()))
        return AgentQuestion(text=self.question, choices=choices, answer_schema=self.answer_schema)


class SendMessageArgs(BaseModel):
    """Arguments of `send_message`."""

    to: str
    message: Annotated[str, AfterValidator(_check_message)]


class AskLaterArgs(AskSuperiorArgs):
    """Arguments of `ask_later`."""

    urgent: bool = False

    def build_question(self) -> AgentQuestion:
        """Return the question."""
        return super().build_question().model_copy(update={"urgent": self.urgent})


class AskUserArgs(AskLaterArgs):
    """Arguments of `ask_user`."""

    deadline_seconds: Annotated[float | None, Field(gt=0, le=MAX_DEADLINE_SECONDS)] = None
    default: Any = None

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        if self.default is None:
            return self
        if self.deadline_seconds is None:
            raise ValueError("default: it is taken at a deadline; give deadline_seconds, too")
        if fault := find_default_fault(self.default, super().build_question().response_schema):
            raise ValueError(fault)
        return self

    def build_question(self, deadline: str | None = None) -> AgentQuestion:
        """Return the question, with its deadline as ISO 8601 in UTC."""
        more = {"deadline": deadline, "default": self.default}
        return super().build_question().model_copy(update=more)


class AskArgs(AskUserArgs):
    """Arguments of `ask`."""

    to: Literal["superior", "user"] | None = None
    wait: Annotated[bool, BeforeValidator(_read_wait)] = True

    @property
    def is_for_user(self) -> bool:
        """Whether the user is meant: only the user can be asked without waiting, or in time."""
        if self.to is None:
            return not self.wait or self.deadline_seconds is not None
        return self.to == "user"


def build_call_subordinate_schema(
    subordinates: Sequence[Member], spawn: Spawn | None = None, *, has_budget: bool = False
) -> DelegationTool:
    """Return the schema of `call_subordinate` for these subordinates.

    An agent that may make others at run time may name them, too, and one with a budget may say how
    much of it a subordinate may spend. The offline planner reads each with the capabilities of
    everything below it.
    """
    properties = _build_request_properties(subordinates, spawn)
    if has_budget:
        properties["budget"] = BUDGET_PROPERTY
    schema = DelegationTool(_build_function_schema(CALL_SUBORDINATE, properties, ["message"]))
    schema.roster = render_roster(
        RosterEntry(each.name, each.description, collect_capabilities(each))
        for each in subordinates
    )
    return schema


def build_spawn_schema(
    rules: Spawn, contact_user: bool, *, has_budget: bool = False
) -> dict[str, Any]:
    """Return the schema of `spawn_subordinate` for an agent with these rules.

    Args:
        rules: What it may make.
        contact_user: Whether it may ask the user past its superior.
        has_budget: Whether it has a budget, of which it may grant a part.
    """
    properties: dict[str, Any] = {
        "role": {"type": "string", "maxLength": MAX_ROLE},
        "message": {"type": "string"},
    }
    if rules.profiles:
        properties["profile"] = {"type": "string", "enum": [*rules.profiles]}
    if rules.tools:
        names = {"type": "string", "enum": [*rules.tools]}
        properties["tools"] = {"type": "array", "items": names}
    if contact_user:
        properties["contact_user"] = {"type": "boolean", "default": False}
    properties["kind"] = {"type": "string", "enum": [*rules.kinds], "default": rules.kinds[0]}
    if "mortal" in rules.kinds:
        properties["keep"] = {"type": "boolean", "default": False}
    if has_budget:
        properties["budget"] = BUDGET_PROPERTY
    return _build_function_schema(SPAWN_SUBORDINATE, properties, ["role", "message"])


@cache
def build_dismiss_schema() -> dict[str, Any]:
    """Return the schema of `dismiss_subordinate`."""
    return _build_function_schema(DISMISS_SUBORDINATE, {"name": {"type": "string"}}, ["name"])


def build_delegate_many_schema(*, has_budget: bool = False) -> dict[str, Any]:
    """Return the schema of `delegate_many`; its requests take all that `call_subordinate` takes."""
    kinds = {"message": "string", "subordinate": "string", "context": "object"}
    request = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
        "required": ["message"],
    }
    properties: dict[str, Any] = {
        "requests": {"type": "array", "items": request},
        "join": {"type": "string", "enum": list(JOIN_NAMES)},
        "n": {"type": "integer"},
        **({"budget": BUDGET_PROPERTY} if has_budget else {}),
    }
    return _build_function_schema(DELEGATE_MANY, properties, ["requests"])


def build_subordinate_tool(member: Member, schema: dict[str, Any]) -> SubordinateTool:
    """Return the tool that gives a subordinate the input of its contract, which has this schema."""
    description = load_tool_texts("subordinate")["description"]
    if member.description:
        description = f"{member.description}\n{description}"
    parameters = {key: each for key, each in schema.items() if key != "title"}
    function = {"name": member.name, "description": description, "parameters": parameters}
    return SubordinateTool(type="function", function=function)


def _build_request_properties(
    subordinates: Sequence[Member], spawn: Spawn | None
) -> dict[str, Any]:
    typed = get_inputs({each.name: each for each in subordinates})
    more: dict[str, Any] = {"input": {"type": "object"}} if typed else {}
    # Those made at run time have names that are not known yet.
    names = {} if spawn else {"enum": [each.name for each in subordinates]}
    if spawn and spawn.profiles:
        more["profile"] = {"type": "string", "enum": [*spawn.profiles]}
    return {
        "message": {"type": "string"},
        "subordinate": {"type": "string", **names},
        "reset": {"type": "boolean"},
        "answers": {"type": "string"},
        "context": {"type": "object"},
        **more,
    }


@cache
def build_recall_schema() -> dict[str, Any]:
    """Return the schema of `recall`."""
    return _build_function_schema(RECALL, {"query": {"type": "string"}}, ["query"])


@cache
def build_pin_schema() -> dict[str, Any]:
    """Return the schema of `pin`."""
    return _build_function_schema(PIN, {"text": {"type": "string"}}, ["text"])


@cache
def build_read_result_schema() -> dict[str, Any]:
    """Return the schema of `read_result`, which reads on in a long result."""
    properties = {"id": {"type": "string"}, "offset": {"type": "integer", "minimum": 0}}
    return _build_function_schema(READ_RESULT, properties, ["id", "offset"])


def build_report_schema(output: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of `report`; the result is of the schema of an output, if there is one."""
    return _build_function_schema(
        REPORT,
        {
            "status": {"type": "string", "enum": [str(status) for status in Status]},
            "result": output or {"type": "string"},
            "confidence": {"type": "number"},
            "reason": {"type": "string"},
        },
        ["status"],
    )


@cache
def build_ask_schema(*, can_ask_user: bool, has_superior: bool) -> dict[str, Any]:
    """Return the schema of `ask`, with the parameters that the agent's place gives a meaning.

    Args:
        can_ask_user: Whether it may ask the user; a root's superior is the user.
        has_superior: Whether its superior is an agent.
    """
    properties: dict[str, Any] = {
        "question": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "string"}},
    }
    if can_ask_user and has_superior:
        properties["to"] = {"type": "string", "enum": ["superior", "user"]}
    if can_ask_user:
        properties["wait"] = {"type": "boolean"}
        properties["deadline_seconds"] = {"type": "number"}
        properties["default"] = {}
    return _build_function_schema(ASK, properties, ["question"])


@cache
def build_send_message_schema(siblings: Sequence[str]) -> dict[str, Any]:
    """Return the schema of `send_message`.

    Args:
        siblings: The agents with the same superior, this one included; a tuple.
    """
    properties = {"to": {"type": "string"}, "message": {"type": "string"}}
    schema = _build_function_schema(SEND_MESSAGE, properties, ["to", "message"])
    beside = ""
    if len(siblings) > 1:
        shown = ", ".join(siblings[:MAX_SHOWN_SIBLINGS])
        more = " and others" if len(siblings) > MAX_SHOWN_SIBLINGS else ""
        beside = fill_text(load_tool_texts(SEND_MESSAGE)["siblings"], names=f"{shown}{more}")
    to = schema["function"]["parameters"]["properties"]["to"]
    to["description"] = fill_text(to["description"], siblings=beside)
    return schema


def _build_function_schema(
    name: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": load_tool_texts(name)["description"],
            "parameters": {
                "type": "object",
                "properties": _describe_properties(name, properties),
                "required": required,
            },
        },
    }


def _describe_properties(tool: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a tool with their texts, where there are any."""
    texts = load_tool_texts(tool)
    return {
        key: {**each, "description": texts[key]} if key in texts else each
        for key, each in properties.items()
    }
