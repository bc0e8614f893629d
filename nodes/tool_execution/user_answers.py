"""Questions of tools and functions to people: LangGraph's `interrupt`, answered in a later run."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from echelons.delegation.approvals import find_review
from echelons.delegation.effects import (
    CallOutcome,
    CallQuestion,
    CallStart,
    CallState,
    EffectCall,
    EffectKind,
    Happened,
    Journal,
    JournalEntry,
    OutcomeUnknown,
    is_outcome_question,
)
from echelons.delegation.questions import read_question_value
from echelons.delegation.user_answers import (
    MAX_SHOWN,
    UserAnswer,
    shorten_user_text,
)
from echelons.guards.gate import is_pause
from echelons.identity.lineage import USER_ANSWERS_KEY
from echelons.langgraph_internals import RESUMING_KEY
from echelons.models.usage import InnerCalls
from echelons.nodes.base_node import Node
from echelons.nodes.tool_execution.journaled_call import build_journal_call, change_answer
from echelons.nodes.tool_execution.scratchpad import MISSING, Scratchpad
from echelons.plans import PlanStep, arun_plan_steps, run_plan_steps
from echelons.text.error_lines import sanitize_value
from echelons.text.input_limits import shorten_repr


def note_questions(
    earlier: Iterable[CallQuestion], interrupts: Iterable[Interrupt]
) -> tuple[CallQuestion, ...]:
    """Return the questions of a call that is suspended: those answered, and those it waits for."""
    waiting = [
        _describe_interrupt(interrupt) for interrupt in interrupts if not is_pause(interrupt.value)
    ]
    ids = {question.id for question in waiting}
    answered = [
        question for question in earlier if question.answer is not None and question.id not in ids
    ]
    return (*answered, *waiting)[-MAX_SHOWN:]


def note_answers(
    entry: JournalEntry, pad: Scratchpad, answers: Sequence[Any]
) -> tuple[CallQuestion, ...]:
    """Return the questions of a suspended call that goes on with some answers."""
    by_id = {
        pad.build_interrupt_id(place): answer
        for place, answer in enumerate(answers)
        if place not in entry.ours
    }
    return tuple(
        question
        if answer is MISSING
        else replace(question, answer=_format_answer(answer, question.is_review))
        for question in entry.told
        for answer in [by_id.get(question.id, MISSING)]
        for answer in [pad.find_inner_answer(question) if answer is MISSING else answer]
    )


def note_outcome(
    entry: JournalEntry, question: OutcomeUnknown, id: str, outcome: CallOutcome
) -> tuple[CallQuestion, ...]:
    """Return the questions of a call with the one whether it has happened, and its answer."""
    report = f"{outcome.outcome}: {outcome.result}" if isinstance(outcome, Happened) else None
    answer = shorten_user_text(report or outcome.outcome)
    answered = CallQuestion(id, shorten_user_text(question["question"]), answer)
    return (*entry.told, answered)[-MAX_SHOWN:]


def mark_user_answers(
    outcome: Any,
    call_id: str | None,
    answers: Iterable[UserAnswer] = (),
    questions: Iterable[CallQuestion] = (),
) -> Any:
    """Return the update of a call, its answer marked with the report to the superior."""
    marks = list_user_answers(answers, questions)
    if not marks:
        return outcome

    def mark(answer: ToolMessage) -> ToolMessage:
        metadata = {**answer.response_metadata, USER_ANSWERS_KEY: marks}
        return answer.model_copy(update={"response_metadata": metadata})

    return change_answer(outcome, call_id, mark)


def list_user_answers(
    answers: Iterable[UserAnswer], questions: Iterable[CallQuestion]
) -> list[dict[str, Any]]:
    """Return the marks of an answer: the report to its superior, as JSON."""
    reported = [
        *answers,
        *(
            UserAnswer(question=question.text, answer=question.answer)
            for question in questions
            if question.answer is not None
        ),
    ]
    return [answer.stored() for answer in reported[-MAX_SHOWN:]]


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
    elif question := read_question_value(value):
        text = question.text
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


class ToldRun(Node):
    """The node of a subordinate that is no agent, whose superior reads its questions.

    Args:
        node: Runs it.
        member: Its name.
        journal: Keeps its questions.
    """

    def __init__(self, node: Node, member: str, journal: Journal) -> None:
        super().__init__(node.name or "", node.deps)
        self._node = node
        self._member = member
        self._journal = journal

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run it, and return its answer with what the user was asked.

        Raises:
            GraphInterrupt: It asks.
        """
        plan = self._plan(self._build_step(input, config, kwargs), config or {})
        return run_plan_steps(plan)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        plan = self._plan(self._build_step(input, config, kwargs), config or {})
        return await arun_plan_steps(plan)

    def _build_step(
        self, state: Any, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> PlanStep:
        node, around = self._node, config or {}

        def run() -> Any:
            with InnerCalls(around):
                return node.invoke(state, config, **kwargs)

        async def arun() -> Any:
            with InnerCalls(around):
                return await node.ainvoke(state, config, **kwargs)

        return PlanStep(run, arun)

    def _plan(self, run: PlanStep, config: RunnableConfig) -> Generator[PlanStep, Any, Any]:
        journal, pad = self._journal, Scratchpad(config)
        call = build_journal_call(config, "", self._member, {}, EffectKind.READS_ONLY)
        step = partial(self._build_journal_step, config=config)
        keeps, entry = journal.keeps(config), cast("JournalEntry | None", None)
        if keeps and config["configurable"].get(RESUMING_KEY):
            entry = yield step(partial(journal.find, call, config))
        if entry and entry.state is not CallState.DONE:
            questions = note_answers(entry, pad, pad.answers)
            if questions != entry.told:
                # Before it goes on: the answers are known now alone.
                now = replace(entry, at="", told=questions)
                entry = yield step(partial(journal.note, call, now, config))
        try:
            update = yield run
        except GraphInterrupt as stop:
            questions = note_questions(
                entry.told if entry else (), stop.args[0] if stop.args else ()
            )
            if keeps and questions and (entry is None or questions != entry.told):
                yield from self._suspend(call, entry, questions, config)
            raise
        if entry and entry.state is CallState.DONE:
            # Death has undone the step that was marked with them.
            return _mark(update, entry.result)
        unjournaled = [] if keeps else build_unjournaled_answers(self._member, pad.answers)
        marks = list_user_answers(unjournaled, entry.told if entry else ())
        if entry:
            yield step(partial(journal.end, call, entry, marks, config))
        return _mark(update, marks)

    def _suspend(
        self,
        call: EffectCall,
        entry: JournalEntry | None,
        questions: tuple[CallQuestion, ...],
        config: RunnableConfig,
    ) -> Generator[PlanStep, Any, None]:
        """Keep the questions of a run that waits, unless its agent was dismissed meanwhile."""
        if entry is None:
            begun: CallStart = yield self._build_journal_step(
                partial(self._journal.begin, call, config), config
            )
            if begun.halt:
                return
            entry = begun.entry
        now = replace(entry, state=CallState.SUSPENDED, at="", told=questions)
        yield self._build_journal_step(partial(self._journal.note, call, now, config), config)

    def _build_journal_step(self, work: Any, config: RunnableConfig) -> PlanStep:
        return PlanStep(work, partial(self._journal.arun, work, config))


def _mark(update: Any, marks: list[dict[str, Any]]) -> Any:
    """Return the update of a run, its answer marked with the report to its superior."""
    messages = update.get("messages") or ()
    if not (marks and messages and isinstance(messages[-1], AIMessage)):
        return update
    metadata = {**messages[-1].response_metadata, USER_ANSWERS_KEY: marks}
    answer = messages[-1].model_copy(update={"response_metadata": metadata})
    return {**update, "messages": [*messages[:-1], answer]}
