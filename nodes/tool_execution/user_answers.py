"""Reports to the superior of an agent the questions of a call to the user, with the answers.

The journal keeps the questions while the call waits, and the tool message that answers the call is
marked with them when it has ended. Approvals are told without the arguments of their calls. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.types import Interrupt

from echelons.effects.approvals import find_review
from echelons.effects.journal import (
    CallOutcome,
    CallQuestion,
    Happened,
    JournalEntry,
    OutcomeUnknown,
    is_outcome_question,
)
from echelons.guards.gate import is_pause
from echelons.identity.lineage import USER_ANSWERS_KEY
from echelons.messaging.agent_question import read_question_value
from echelons.messaging.user_answer import MAX_SHOWN, UserAnswer, shorten_user_text
from echelons.nodes.tool_execution.journaled_call import change_answer
from echelons.nodes.tool_execution.scratchpad import MISSING, Scratchpad
from echelons.text.input_limits import shorten_repr
from echelons.text.sanitize import sanitize_value


def note_questions(
    told: Iterable[CallQuestion], asked: Iterable[Interrupt]
) -> tuple[CallQuestion, ...]:
    """Return the questions of a call that is suspended: those answered, and those it waits for."""
    waiting = [_describe_interrupt(each) for each in asked if not is_pause(each.value)]
    ids = {each.id for each in waiting}
    answered = [each for each in told if each.answer is not None and each.id not in ids]
    return (*answered, *waiting)[-MAX_SHOWN:]


def note_answers(
    entry: JournalEntry, pad: Scratchpad, answers: Sequence[Any]
) -> tuple[CallQuestion, ...]:
    """Return the questions of a suspended call that goes on with some answers."""
    found = {
        pad.build_interrupt_id(place): answer
        for place, answer in enumerate(answers)
        if place not in entry.ours
    }
    return tuple(
        each if answer is MISSING else replace(each, answer=_format_answer(answer, each.is_review))
        for each in entry.told
        for answer in [found.get(each.id, MISSING)]
        for answer in [pad.find_inner_answer(each) if answer is MISSING else answer]
    )


def note_outcome(
    entry: JournalEntry, question: OutcomeUnknown, id: str, outcome: CallOutcome
) -> tuple[CallQuestion, ...]:
    """Return the questions of a call with the one whether it has happened, and its answer."""
    said = f"{outcome.outcome}: {outcome.result}" if isinstance(outcome, Happened) else None
    answer = shorten_user_text(said or outcome.outcome)
    asked = CallQuestion(id, shorten_user_text(question["question"]), answer)
    return (*entry.told, asked)[-MAX_SHOWN:]


def mark_user_answers(
    outcome: Any,
    call_id: str | None,
    told: Iterable[UserAnswer] = (),
    questions: Iterable[CallQuestion] = (),
) -> Any:
    """Return the update of a call, its answer marked with the report to the superior."""
    marks = list_user_answers(told, questions)
    if not marks:
        return outcome

    def mark(answer: ToolMessage) -> ToolMessage:
        metadata = {**answer.response_metadata, USER_ANSWERS_KEY: marks}
        return answer.model_copy(update={"response_metadata": metadata})

    return change_answer(outcome, call_id, mark)


def list_user_answers(
    told: Iterable[UserAnswer], questions: Iterable[CallQuestion]
) -> list[dict[str, Any]]:
    """Return the marks of an answer: the report to its superior, as JSON."""
    asked = [
        *told,
        *(
            UserAnswer(question=question.text, answer=question.answer)
            for question in questions
            if question.answer is not None
        ),
    ]
    return [each.stored() for each in asked[-MAX_SHOWN:]]


def build_unjournaled_answers(tool: str, answers: Iterable[Any]) -> list[UserAnswer]:
    """Return the report to the superior of a call whose questions no journal keeps."""
    question = f"a question of its tool {tool}"
    return [UserAnswer.shorten(question, _format_answer(answer, False)) for answer in answers]


def _describe_interrupt(interrupt: Interrupt) -> CallQuestion:
    value, schema = interrupt.value, interrupt.response_schema
    review = find_review(value, schema if isinstance(schema, Mapping) else None)
    if review:
        tools = ", ".join(dict.fromkeys(call.tool for call in review.calls))
        text = f"May {tools} run?"
    elif is_outcome_question(value):
        text = str(value["question"])
    elif asked := read_question_value(value):
        text = asked.text
    else:
        text = _format_value(value)
    text = shorten_user_text(sanitize_value(text))
    return CallQuestion(interrupt.id, text, is_review=review is not None)


def _format_answer(answer: Any, is_review: bool) -> str:
    if not is_review:
        return shorten_user_text(_format_value(answer))
    decisions = answer
    if isinstance(answer, Mapping) and "decisions" in answer:
        decisions = answer["decisions"]
    listed = decisions if isinstance(decisions, list | tuple) else [decisions]
    return shorten_user_text(_format_value("; ".join(map(_describe_decision, listed))))


def _describe_decision(decision: Any) -> str:
    """Return the type and the reason of a decision, in each form of a review's answer."""
    if not isinstance(decision, Mapping):
        return decision if isinstance(decision, str) else "an answer"
    kind, reason = decision.get("type"), decision.get("message", decision.get("args"))
    return f"{kind}: {reason}" if isinstance(reason, str) and reason else str(kind)


def _format_value(value: Any) -> str:
    clean = sanitize_value(value)
    if isinstance(clean, str):
        return clean
    try:
        return json.dumps(clean, default=repr, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return shorten_repr(clean)
