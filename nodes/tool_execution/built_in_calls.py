"""Executes calls of built-in tools that `act` runs: questions to the user, and dismissals.

They change nothing in the world, so no journal is kept of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from pydantic import ValidationError

from echelons.delegation.roster import DISMISSED
from echelons.guards.gate import get_gate
from echelons.identity.lineage import (
    QUESTIONS_KEY,
    ROSTER_KEY,
    UNANSWERED_KEY,
    USER_ANSWERS_KEY,
    require_identity,
)
from echelons.identity.thread_history import ThreadHistory
from echelons.langgraph_internals import READ_KEY
from echelons.messaging.agent_question import AgentQuestion, MissedAnswer, is_missed_answer
from echelons.messaging.user_answer import UserAnswer
from echelons.models.door.notices import mark_notice
from echelons.nodes.incoming_content import render_value
from echelons.nodes.planning.refused_calls import mark_refused
from echelons.nodes.planning.tool_schemas import (
    AskArgs,
    AskLaterArgs,
    AskSuperiorArgs,
    AskUserArgs,
    DismissSubordinateArgs,
)
from echelons.nodes.tool_execution.at_most_once import Refusal
from echelons.text.json_schema import find_mismatch
from echelons.tree.names import ASK, ASK_LATER, ASK_SUPERIOR, ASK_USER, DISMISS_SUBORDINATE


def execute_built_in_call(
    call: ToolCall, config: RunnableConfig, refusal: Refusal | None, history: ThreadHistory
) -> Any:
    """Execute a call of a built-in tool, and return the node's update.

    Args:
        call: The call; its arguments have been checked, unless a person wrote it into the state.
        config: The config of its task.
        refusal: The gate's refusal to start it, if there is one.
        history: Tells whether the run is stored, so that it can wait for an answer.

    Raises:
        GraphInterrupt: It asks the user.
    """
    if call["name"] == DISMISS_SUBORDINATE:
        return _dismiss_subordinate(call, config, refusal)
    return _execute_question(call, config, refusal, history)


def is_kept_question(call: ToolCall) -> bool:
    """Return whether a call asks a question for whose answer the agent does not wait."""
    return call["name"] == ASK_LATER or (
        call["name"] == ASK and call["args"].get("wait", True) is False
    )


def _execute_question(
    call: ToolCall, config: RunnableConfig, refusal: Refusal | None, history: ThreadHistory
) -> Any:
    """Ask the user, and return the update of the answer."""
    try:
        question = _build_question(call, config)
    except ValidationError as error:
        return _build_error_update(call, f"the arguments are not valid: {error}")
    if refusal and not refusal.halt.is_limit:
        return refusal.build_update(False)
    if not history.is_durable(config):
        why = "nothing of this run is stored, so nobody can answer; decide by yourself"
        return _build_error_update(call, why)
    if is_kept_question(call):
        return _build_kept_update(call, question, config)
    try:
        answer = _ask_user(question)
    except GraphInterrupt:
        if refusal:
            return refusal.build_update(False)
        if question.deadline is not None:
            get_gate(config).note_deadline(datetime.fromisoformat(question.deadline))
        raise
    return _build_answered_update(call, question, answer, config)


def _dismiss_subordinate(
    call: ToolCall, config: RunnableConfig, refusal: Refusal | None
) -> dict[str, Any]:
    """Dismiss a subordinate; a call that is made again, after a crash, changes nothing."""
    try:
        name = DismissSubordinateArgs.model_validate(call["args"]).name
    except ValidationError as error:
        return _build_error_update(call, f"the arguments are not valid: {error}")
    if refusal:
        done: dict[str, Any] = refusal.build_update(False)
        return done
    text = f"{name} is dismissed, with all below it"
    if cut := get_gate(config).dismiss(name, config):
        text = f"{text}; what came of these calls is not known: {', '.join(cut)}"
    noted = mark_notice(_build_answer(call, text))
    metadata = {**noted.response_metadata, ROSTER_KEY: {name: DISMISSED.stored()}}
    return {"messages": [noted.model_copy(update={"response_metadata": metadata})]}


def _build_kept_update(
    call: ToolCall, question: AgentQuestion, config: RunnableConfig
) -> dict[str, Any]:
    """Keep a question for whose answer the agent does not wait."""
    stored = question.stored()
    key = get_gate(config).mailboxes.keep_question(stored, call["id"] or "", config)
    if not key:
        return _build_error_update(call, "nothing of this run is stored, so nobody can answer")
    message = mark_notice(_build_answer(call, "asked; you are told when there is an answer; go on"))
    message.artifact = {"id": key, "question": stored}
    return {"messages": [message]}


def _build_answered_update(
    call: ToolCall, question: AgentQuestion, answer: Any, config: RunnableConfig
) -> Any:
    if question.deadline is not None and is_missed_answer(answer):
        return _build_missed_update(call, question, answer, config)
    text = render_value(answer)
    message = _build_answer(call, text)
    is_told = call["name"] == ASK and require_identity(config).request_id
    if call["name"] == ASK_USER or is_told:
        message = _mark_answer(message, question, text)
    return {"messages": [message]}


def _build_question(call: ToolCall, config: RunnableConfig) -> AgentQuestion:
    if call["name"] == ASK_SUPERIOR:
        return AskSuperiorArgs.model_validate(call["args"]).build_question()
    if call["name"] == ASK_LATER:
        return AskLaterArgs.model_validate(call["args"]).build_question()
    asked = (AskArgs if call["name"] == ASK else AskUserArgs).model_validate(call["args"])
    state: dict[str, Any] = config["configurable"][READ_KEY](["messages"])
    for message in reversed(state["messages"]):
        if isinstance(message, AIMessage):
            noted: Mapping[str, Any] = message.response_metadata.get(QUESTIONS_KEY) or {}
            return asked.build_question((noted.get(call["id"] or "") or {}).get("deadline"))
    return asked.build_question()


def _ask_user(question: AgentQuestion) -> Any:
    """Return the user's answer to a question, which fits its schema, or that there is none."""
    schema = question.response_schema
    while True:
        answer = interrupt(question.build_interrupt_value(), response_schema=schema)
        # A session has checked it; `Command(resume=...)` of LangGraph has not. It is asked again.
        if schema is None or is_missed_answer(answer) or not find_mismatch(answer, schema):
            return answer


def _build_missed_update(
    call: ToolCall, question: AgentQuestion, missed: MissedAnswer, config: RunnableConfig
) -> Any:
    """Return the update of a call whose question was not answered by its deadline.

    Its default is taken. Without one, the superior is asked; a root goes on without an answer.
    """
    text, default = f"no answer by {missed['deadline']}", missed["default"]
    if default is not None:
        text = f"{text}; taken instead: {render_value(default)}"
    answer = mark_notice(_build_answer(call, text))
    if default is None and require_identity(config).request_id:
        metadata = {**answer.response_metadata, UNANSWERED_KEY: _build_passed_on(question)}
        answer = answer.model_copy(update={"response_metadata": metadata})
    return {"messages": [_mark_answer(answer, question, text)]}


def _mark_answer(message: ToolMessage, question: AgentQuestion, text: str) -> ToolMessage:
    """Return the answer to a call, marked with what the superior is told of it."""
    told = [UserAnswer.shorten(question.text, text).stored()]
    metadata = {**message.response_metadata, USER_ANSWERS_KEY: told}
    return message.model_copy(update={"response_metadata": metadata})


def _build_passed_on(question: AgentQuestion) -> dict[str, Any]:
    """Return a question as it goes to the superior, whose answer has no deadline."""
    return question.model_copy(update={"deadline": None, "default": None}).stored()


def _build_answer(call: ToolCall, text: str) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"])


def _build_error_update(call: ToolCall, why: str) -> dict[str, Any]:
    answer = ToolMessage(
        f"Error: {why}", tool_call_id=call["id"] or "", name=call["name"], status="error"
    )
    return {"messages": [mark_refused(answer)]}
