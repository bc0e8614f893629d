"""The built-in tools of a level: delegation, reports and questions.

Their arguments are pydantic models; the functions build the JSON schemas bound to a chat
model. The nodes handle the calls themselves, so no tool has a body.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from echelons.delegation.join_policies import JOIN_NAMES
from echelons.delegation.request import Status
from echelons.errors import InvalidInput
from echelons.messaging.agent_question import (
    AgentQuestion,
    find_default_fault,
    find_question_fault,
)
from echelons.messaging.mail import check_mail_text
from echelons.text.input_limits import check_context
from echelons.tree.members import Member
from echelons.tree.names import (
    ASK_LATER,
    ASK_SUPERIOR,
    ASK_USER,
    CALL_SUBORDINATE,
    DELEGATE_MANY,
    REPORT,
    SEND_MESSAGE,
)
from echelons.tree.roster import RosterEntry, render_roster
from echelons.tree.traversal import collect_capabilities

MAX_SHOWN_SIBLINGS = 32
"""Most names of agents beside it that an agent's model is shown."""
MAX_DEADLINE_SECONDS = 366 * 24 * 3600
"""Latest deadline of a question to the user, in seconds from now: a year."""
MAX_REQUESTS = 256
"""Most requests of one call, so that a model's slip does not start ten thousand agents."""


_QUESTION_PROPERTIES: dict[str, Any] = {
    "question": {"type": "string", "description": "The question, complete in itself."},
    "choices": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": "The answers to choose from, if there are only these.",
    },
    "schema": {
        "type": "object",
        "description": "JSON Schema of the answer, if you need it in a form.",
    },
}


_URGENT_PROPERTY: dict[str, Any] = {
    "urgent": {"type": "boolean", "default": False, "description": "Whether it comes first."}
}


def _check_context(given: dict[str, Any] | None) -> dict[str, Any]:
    try:
        return check_context(given, "the context")
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def _check_message(text: str) -> str:
    try:
        return check_mail_text(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from error


class CallSubordinateArgs(BaseModel):
    """Arguments of `call_subordinate`."""

    message: str = Field(min_length=1)
    subordinate: str | None = None
    reset: bool = False
    answers: str | None = None
    context: Annotated[dict[str, Any] | None, AfterValidator(_check_context)] = None
    profile: str | None = None


class DelegateManyArgs(BaseModel):
    """Arguments of `delegate_many`."""

    requests: list[CallSubordinateArgs] = Field(min_length=1, max_length=MAX_REQUESTS)
    join: Any = "all"
    n: Any = None


class ReportArgs(BaseModel):
    """Arguments of `report`."""

    status: Status
    result: str = ""
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


def build_call_subordinate_schema(subordinates: Sequence[Member]) -> dict[str, Any]:
    """Return the schema of `call_subordinate` for these subordinates.

    Each is listed with its description and the declared capabilities of everything below it:
    a superior knows what a branch can do without knowing its members.
    """
    roster = render_roster(
        RosterEntry(each.name, each.description, collect_capabilities(each))
        for each in subordinates
    )
    return _build_function_schema(
        CALL_SUBORDINATE,
        "Give a task to a subordinate and get its answer. Call it several times in one "
        f"message to have tasks done side by side.\n\nYour subordinates:\n{roster}",
        _build_request_properties(subordinates),
        ["message"],
    )


def build_delegate_many_schema(subordinates: Sequence[Member]) -> dict[str, Any]:
    """Return the schema of `delegate_many` for these subordinates."""
    request = {
        "type": "object",
        "properties": _build_request_properties(subordinates),
        "required": ["message"],
    }
    return _build_function_schema(
        DELEGATE_MANY,
        "Give several tasks to subordinates at the same time and get one answer: when you need "
        "the fastest, the best or some of several answers. Who they are says "
        f"{CALL_SUBORDINATE}.",
        {
            "requests": {
                "type": "array",
                "items": request,
                "minItems": 1,
                "maxItems": MAX_REQUESTS,
            },
            "join": {
                "type": "string",
                "enum": list(JOIN_NAMES),
                "default": "all",
                "description": "all: every answer; first: the first that is fulfilled, the others "
                "are stopped then; quorum: the first n; best: the best of all.",
            },
            "n": {"type": "integer", "minimum": 1, "description": "For quorum: how many."},
        },
        ["requests"],
    )


def _build_request_properties(subordinates: Sequence[Member]) -> dict[str, Any]:
    return {
        "message": {"type": "string", "description": "The task, complete in itself."},
        "subordinate": {
            "type": "string",
            "enum": [each.name for each in subordinates],
            "description": "Whom to give it to. Left out, it goes to the agent that fits best, "
            "also further down, and to the next best if that one cannot.",
        },
        "reset": {
            "type": "boolean",
            "default": False,
            "description": "true: start anew; false: go on with the subordinate's "
            "latest conversation, which it remembers.",
        },
        "answers": {
            "type": "string",
            "description": "The id of the question that the message answers, if it answers one; "
            "who asked goes on with its conversation.",
        },
        "context": {
            "type": "object",
            "description": "Facts for the task as data, by name, such as ids and amounts. It gets "
            "these and no others: name what you were given yourself again.",
        },
    }


def build_report_schema() -> dict[str, Any]:
    """Return the schema of `report`."""
    return _build_function_schema(
        REPORT,
        "End your turn with anything else than a plain answer. A plain answer counts as fulfilled.",
        {
            "status": {
                "type": "string",
                "enum": [str(status) for status in Status],
                "description": "fulfilled: done; partial: done in part; unable: you cannot "
                "do it; needs_input: you need to know more first.",
            },
            "result": {"type": "string", "description": "The answer, or your question."},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
            "reason": {"type": "string", "description": "Why, unless it is fulfilled."},
        },
        ["status"],
    )


@cache
def build_ask_superior_schema() -> dict[str, Any]:
    """Return the schema of `ask_superior`, the same for every level.

    An agent is told the same of a superior that is an agent and of one that is a human.
    """
    return _build_function_schema(
        ASK_SUPERIOR,
        "Ask your superior what you need to know and cannot find out yourself. You go on with the "
        "answer.",
        _QUESTION_PROPERTIES,
        ["question"],
    )


@cache
def build_ask_user_schema() -> dict[str, Any]:
    """Return the schema of `ask_user`."""
    return _build_function_schema(
        ASK_USER,
        "Ask the user, past your superior, who is told. Only for what the user alone can say. You "
        "go on with the answer.",
        {
            **_QUESTION_PROPERTIES,
            **_URGENT_PROPERTY,
            "deadline_seconds": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "How long you can wait, in seconds. Without an answer by then the "
                "default is taken; without a default, your superior is asked.",
            },
            "default": {"description": "The answer that is taken then."},
        },
        ["question"],
    )


@cache
def build_send_message_schema(siblings: Sequence[str]) -> dict[str, Any]:
    """Return the schema of `send_message`.

    Args:
        siblings: The agents with the same superior, this one included; a tuple.
    """
    beside = ""
    if len(siblings) > 1:
        shown = ", ".join(siblings[:MAX_SHOWN_SIBLINGS])
        more = " and others" if len(siblings) > MAX_SHOWN_SIBLINGS else ""
        beside = f" or the name of an agent beside you ({shown}{more})"
    return _build_function_schema(
        SEND_MESSAGE,
        "Tell your superior how far you are, or an agent beside you what it should know, and go on "
        "with your task. You get no answer; what others send you, you are shown.",
        {
            "to": {"type": "string", "description": f'"superior"{beside}.'},
            "message": {"type": "string", "description": "What to say, complete in itself."},
        },
        ["to", "message"],
    )


@cache
def build_ask_later_schema() -> dict[str, Any]:
    """Return the schema of `ask_later`."""
    return _build_function_schema(
        ASK_LATER,
        "Ask the user what is good to know but not needed now, and go on with your work. You are "
        "told the answer when there is one, now or in a later task.",
        {**_QUESTION_PROPERTIES, **_URGENT_PROPERTY},
        ["question"],
    )


def _build_function_schema(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }
