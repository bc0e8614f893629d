"""`QuestionFeature`: the tools with which agents ask, and the deadlines of people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from echelons.delegation.mail import get_mailboxes
from echelons.delegation.questions import (
    AgentQuestion,
    find_default_fault,
    find_question_fault,
    is_missed_answer,
)
from echelons.delegation.user_answers import UserAnswer
from echelons.features.feature import (
    AgentHooks,
    AttemptHooks,
    AttemptStep,
    BuiltIn,
    Feature,
    Place,
    RequestPlace,
    ToolScope,
)
from echelons.guards.circuit_breaker import AttemptOutcome
from echelons.guards.gate import get_gate
from echelons.human import MAX_TIMEOUT, Human
from echelons.identity.lineage import (
    ASKED_KEY,
    QUESTIONS_KEY,
    UNANSWERED_KEY,
    USER_ANSWERS_KEY,
    require_identity,
)
from echelons.langgraph_internals import READ_KEY
from echelons.models.notices import mark_notice
from echelons.nodes.attempt import Attempt, AttemptResult
from echelons.nodes.messages import render_value
from echelons.nodes.planning.call_arguments import validate_arguments
from echelons.nodes.planning.repeated_calls import build_error_update
from echelons.plans import Plan, build_step
from echelons.text.json_schema import find_mismatch
from echelons.tree.names import ASK, ASK_LATER, ASK_SUPERIOR, ASK_USER

if TYPE_CHECKING:
    from echelons.nodes.planning.tool_calls import ReplyCalls

MAX_DEADLINE_SECONDS = 366 * 24 * 3600
"""Latest deadline of a question to the user, in seconds from now: a year."""


class AnswerDeadline(AttemptHooks):
    """Sets the deadline of the requests to a person."""

    def around_attempt(
        self, step: AttemptStep, proceed: Callable[[AttemptStep], Plan[Attempt]]
    ) -> Plan[Attempt]:
        """Count the whole time of a person who has missed it, as it goes on while no run does."""
        done = yield from proceed(step)
        if done.end is AttemptOutcome.FAILED:
            return done._replace(spent=max(done.spent, step.options.timeout or 0.0))
        return done

    def around_level(
        self, step: AttemptStep, proceed: Callable[[AttemptStep], Plan[AttemptResult]]
    ) -> Plan[AttemptResult]:
        """Add the deadline to the input of the level.

        The level begins with it once: when the person is asked again in the same attempt, in
        whichever process, its deadline stays what it was.
        """
        timeout = step.options.timeout
        if timeout is None:
            return (yield from proceed(step))
        deadline = step.gate.get_time() + timedelta(seconds=min(timeout, MAX_TIMEOUT))
        *facts, task = step.start["messages"]
        note = {QUESTIONS_KEY: {step.order.request.id: {"deadline": deadline.isoformat()}}}
        task = task.model_copy(update={"response_metadata": note})
        start = {**step.start, "messages": [*facts, task]}
        return (yield from proceed(replace(step, start=start)))


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
    wait: Annotated[bool, BeforeValidator(lambda value: True if value is None else value)] = True

    @property
    def is_for_user(self) -> bool:
        """Whether the user is meant: only the user can be asked without waiting, or in time."""
        if self.to is None:
            return not self.wait or self.deadline_seconds is not None
        return self.to == "user"


class Question(BuiltIn):
    """A tool that asks the superior or the user.

    Args:
        has_superior: Whether the superior is an agent: a question to it ends the segment.
    """

    is_offered, is_silent, may_repeat = False, True, True

    def __init__(self, *, has_superior: bool) -> None:
        self._has_superior = has_superior

    def build_schema(self) -> dict[str, Any]:
        """Return nothing: no model is shown a name that `ask` had before."""
        return {}

    def execute(self, call: ToolCall, scope: ToolScope) -> Plan[dict[str, Any]]:
        """Ask the user, and return the update of the answer.

        Raises:
            GraphInterrupt: There is no answer yet.
        """
        config, refusal = scope.config, scope.refusal
        try:
            # The arguments have been checked, unless a person wrote the call into the state.
            question, waits = self._build_question(call, config)
        except ValidationError as error:
            return build_error_update(call, f"the arguments are not valid: {error}")
        if refusal and not refusal.halt.is_limit:
            return dict(refusal.build_update(False))
        if not scope.history.is_durable(config):
            why = "nothing of this run is stored, so nobody can answer; decide by yourself"
            return build_error_update(call, why)
        if not waits:
            keep = partial(_build_kept_update, call, question, config)
            kept: dict[str, Any] = yield build_step(keep, get_gate(config).arun)
            return kept
        try:
            answer = _ask_user(question)
        except GraphInterrupt:
            if refusal:
                return dict(refusal.build_update(False))
            if question.deadline is not None:
                get_gate(config).note_deadline(datetime.fromisoformat(question.deadline))
            raise
        return self._build_answered_update(call, question, answer, config)

    def _build_question(self, call: ToolCall, config: RunnableConfig) -> tuple[AgentQuestion, bool]:
        """Return the question of a call, and whether its agent waits for the answer."""
        arguments = cast("type[AskSuperiorArgs]", self.arguments)
        return arguments.model_validate(call["args"]).build_question(), True

    def _build_answered_update(
        self, call: ToolCall, question: AgentQuestion, answer: Any, config: RunnableConfig
    ) -> dict[str, Any]:
        if question.deadline is not None and is_missed_answer(answer):
            # The update of a call whose question was not answered by its deadline. Its default is
            # taken. Without one, the superior is asked; a root goes on without an answer.
            missed = answer
            text, default = f"no answer by {missed['deadline']}", missed["default"]
            if default is not None:
                text = f"{text}; taken instead: {render_value(default)}"
            answer = mark_notice(_build_answer(call, text))
            if default is None and require_identity(config).request_id:
                # The superior's answer has no deadline.
                passed_on = question.model_copy(update={"deadline": None, "default": None})
                metadata = {**answer.response_metadata, UNANSWERED_KEY: passed_on.stored()}
                answer = answer.model_copy(update={"response_metadata": metadata})
            return {"messages": [_mark_answer(answer, question, text)]}
        text = render_value(answer)
        message = _build_answer(call, text)
        if self._tells_superior(config):
            message = _mark_answer(message, question, text)
        return {"messages": [message]}

    def _tells_superior(self, config: RunnableConfig) -> bool:
        """Return whether the user's answer is reported to the superior."""
        return False

    def _leave_to_act(self, call: ToolCall, arguments: AskUserArgs, reply: ReplyCalls) -> str:
        """Leave a question to the user to `act`; return why it is refused, if it is."""
        if refusal := reply.take_width(1):
            return str(refusal.reason)
        if arguments.deadline_seconds is not None:
            now = get_gate(reply.scope.config).get_time()
            until = (now + timedelta(seconds=arguments.deadline_seconds)).isoformat()
            reply.metadata.setdefault(QUESTIONS_KEY, {})[call["id"]] = {"deadline": until}
        return ""


class AskSuperior(Question):
    """The tool `ask_superior` of earlier threads; a root's superior is the user."""

    name, arguments = ASK_SUPERIOR, AskSuperiorArgs

    def __init__(self, *, has_superior: bool) -> None:
        super().__init__(has_superior=has_superior)
        self.is_executed = not has_superior

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Take a question; return why it is refused, if it is."""
        reply.must_wait = True
        arguments = validate_arguments(AskSuperiorArgs, call["args"])
        if isinstance(arguments, str):
            return arguments
        if self._has_superior:
            return _end_with_question(call, arguments, reply)
        return super().accept(call, reply)


class AskUser(Question):
    """The tool `ask_user` of earlier threads, which asks past the superior."""

    name, arguments = ASK_USER, AskUserArgs

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Take a question; return why it is refused, if it is."""
        reply.must_wait = True
        arguments = validate_arguments(AskUserArgs, call["args"])
        return (
            arguments if isinstance(arguments, str) else self._leave_to_act(call, arguments, reply)
        )

    def _build_question(self, call: ToolCall, config: RunnableConfig) -> tuple[AgentQuestion, bool]:
        arguments = AskUserArgs.model_validate(call["args"])
        return arguments.build_question(_find_deadline(call, config)), True

    def _tells_superior(self, config: RunnableConfig) -> bool:
        return True


class AskLater(Question):
    """The tool `ask_later` of earlier threads, which asks the user without waiting."""

    name, arguments = ASK_LATER, AskLaterArgs

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Take a question; return why it is refused, if it is."""
        arguments = validate_arguments(AskLaterArgs, call["args"])
        return arguments if isinstance(arguments, str) else super().accept(call, reply)

    def _build_question(self, call: ToolCall, config: RunnableConfig) -> tuple[AgentQuestion, bool]:
        return AskLaterArgs.model_validate(call["args"]).build_question(), False


class Ask(Question):
    """The tool that asks the superior or the user."""

    name, arguments = ASK, AskArgs
    is_offered, may_repeat = True, False

    def __init__(self, *, has_superior: bool, can_ask_user: bool, is_needed: bool = True) -> None:
        super().__init__(has_superior=has_superior)
        self._can_ask_user = can_ask_user
        self.is_needed = is_needed
        self.is_executed = can_ask_user

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown: the parameters that the agent's place gives a meaning."""
        properties: dict[str, Any] = {
            "question": {"type": "string"},
            "choices": {"type": "array", "items": {"type": "string"}},
        }
        if self._can_ask_user and self._has_superior:
            properties["to"] = {"type": "string", "enum": ["superior", "user"]}
        if self._can_ask_user:
            properties["wait"] = {"type": "boolean"}
            properties["deadline_seconds"] = {"type": "number"}
            properties["default"] = {}
        return self._describe(properties, ["question"])

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Take a question; return why it is refused, if it is."""
        reply.metadata[ASKED_KEY] = True
        arguments = validate_arguments(AskArgs, call["args"])
        reply.must_wait |= isinstance(arguments, str) or arguments.wait
        if isinstance(arguments, str):
            return arguments
        if why := self._find_fault(arguments):
            return why
        if arguments.is_for_user or not self._has_superior:
            return self._leave_to_act(call, arguments, reply)
        return _end_with_question(call, arguments, reply)

    def _find_fault(self, arguments: AskArgs) -> str:
        """Return why the agent cannot ask so; empty if it can."""
        if not arguments.wait and arguments.deadline_seconds is not None:
            return "deadline_seconds: it is for an answer that you wait for; leave out one of both"
        if not self._has_superior:
            return ""
        if arguments.is_for_user:
            why = "you may not ask the user yourself; leave out to, wait and deadline_seconds"
            return "" if self._can_ask_user else why
        if not arguments.wait or arguments.deadline_seconds is not None:
            return "wait, deadline_seconds: only a question to the user has them; leave them out"
        return ""

    def _build_question(self, call: ToolCall, config: RunnableConfig) -> tuple[AgentQuestion, bool]:
        arguments = AskArgs.model_validate(call["args"])
        return arguments.build_question(_find_deadline(call, config)), arguments.wait

    def _tells_superior(self, config: RunnableConfig) -> bool:
        return bool(require_identity(config).request_id)


def _end_with_question(call: ToolCall, arguments: AskSuperiorArgs, reply: ReplyCalls) -> str:
    """End the segment with a question to a superior agent."""
    reply.questions.append(arguments.build_question())
    text = "asked: the next message is the answer"
    reply.answers.append(ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"]))
    return ""


def _build_kept_update(
    call: ToolCall, question: AgentQuestion, config: RunnableConfig
) -> dict[str, Any]:
    """Keep a question for whose answer the agent does not wait."""
    stored = question.stored()
    key = get_mailboxes(get_gate(config)).keep_question(stored, call["id"] or "", config)
    if not key:
        return build_error_update(call, "nothing of this run is stored, so nobody can answer")
    message = mark_notice(_build_answer(call, "asked; you are told when there is an answer; go on"))
    message.artifact = {"id": key, "question": stored}
    return {"messages": [message]}


def _find_deadline(call: ToolCall, config: RunnableConfig) -> str | None:
    """Return the deadline of a question, which was noted in its reply."""
    state: dict[str, Any] = config["configurable"][READ_KEY](["messages"])
    for message in reversed(state["messages"]):
        if isinstance(message, AIMessage):
            noted: Mapping[str, Any] = message.response_metadata.get(QUESTIONS_KEY) or {}
            deadline: str | None = (noted.get(call["id"] or "") or {}).get("deadline")
            return deadline
    return None


def _ask_user(question: AgentQuestion) -> Any:
    """Return the user's answer to a question, which fits its schema, or that there is none."""
    schema = question.response_schema
    while True:
        answer = interrupt(question.build_interrupt_value(), response_schema=schema)
        # A session has checked it; `Command(resume=...)` of LangGraph has not. It is asked again.
        if schema is None or is_missed_answer(answer) or not find_mismatch(answer, schema):
            return answer


def _mark_answer(message: ToolMessage, question: AgentQuestion, text: str) -> ToolMessage:
    """Return the answer to a call, marked with its report to the superior."""
    answers = [UserAnswer.shorten(question.text, text).stored()]
    metadata = {**message.response_metadata, USER_ANSWERS_KEY: answers}
    return message.model_copy(update={"response_metadata": metadata})


def _build_answer(call: ToolCall, text: str) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"])


class QuestionHooks(AgentHooks):
    """The tools that ask."""

    def __init__(self, place: Place) -> None:
        agent, has_superior = place.agent, place.reports
        may_ask_past = agent.permissions.contact_user
        can_ask_user = may_ask_past or not has_superior
        is_alone = not (has_superior or agent.subordinates or agent.permissions.spawn)
        tools: list[BuiltIn] = [
            AskSuperior(has_superior=has_superior),
            Ask(
                has_superior=has_superior,
                can_ask_user=can_ask_user,
                is_needed=may_ask_past or not is_alone,
            ),
        ]
        if may_ask_past:
            tools.append(AskUser(has_superior=has_superior))
        if can_ask_user:
            tools.append(AskLater(has_superior=has_superior))
        self.tools: Sequence[BuiltIn] = tools


class QuestionsFeature(Feature):
    """Questions to the superior and to the user."""

    name: ClassVar[str] = "questions"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the tools that ask, if the agent's model can call any."""
        return QuestionHooks(place) if place.can_call else None

    def bind_request(self, place: RequestPlace) -> AttemptHooks | None:
        """Return the deadline of the requests to a person."""
        return AnswerDeadline() if isinstance(place.member, Human) else None


FEATURE = QuestionsFeature()
