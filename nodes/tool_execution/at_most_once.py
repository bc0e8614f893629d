"""Executes a tool call at most once, or asks a human whether it happened.

The rules are one generator, whose steps are the blocking operations. `act` uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained, GraphInterrupt, is_invalid_resume

from echelons.delegation.effects import (
    IDEMPOTENCY_KEY,
    CallStart,
    CallState,
    EffectKind,
    Happened,
    Journal,
    JournalEntry,
    RunAgain,
    build_outcome_question,
    build_outcome_schema,
    parse_outcome,
)
from echelons.delegation.user_answers import UserAnswer
from echelons.errors import CallCutShort
from echelons.guards.gate import Halt
from echelons.identity.failures import get_failure_log
from echelons.nodes.tool_execution.journaled_call import JournaledCall, LateCallback
from echelons.nodes.tool_execution.scratchpad import MISSING, Scratchpad
from echelons.nodes.tool_execution.user_answers import (
    build_unjournaled_answers,
    mark_user_answers,
    note_answers,
    note_outcome,
    note_questions,
)
from echelons.plans import Plan, PlanStep
from echelons.text.error_lines import describe_error

LOG = logging.getLogger(__name__)


ExecutionPlan: TypeAlias = Plan[Any]


class Refusal(NamedTuple):
    """The gate's refusal to start a call.

    Attributes:
        halt: The gate's verdict.
        build_update: Builds the update, given whether the call had begun and was cut short.
    """

    halt: Halt
    build_update: Callable[[bool], Any]


def execute_at_most_once(
    journal: Journal,
    call: JournaledCall,
    config: RunnableConfig,
    refusal: Refusal | None = None,
) -> Plan[Any]:
    """Execute a call, or return its recorded result if it has ended before.

    Args:
        journal: Records which calls have begun and ended.
        call: The call.
        config: The config of its task.
        refusal: Why it may not begin, if so.

    Raises:
        GraphInterrupt: The tool asks, or only a human knows whether the call happened.
        LedgerError: Another run of the thread executes the same call.
        LeaseLost: Another process runs the thread now.
    """
    return _Execution(journal, call, config).plan(refusal)


@dataclass(frozen=True, slots=True)
class _Execution:
    """One call on its way."""

    journal: Journal
    journaled_call: JournaledCall
    config: RunnableConfig

    def plan(self, refusal: Refusal | None) -> ExecutionPlan:
        """Run the call or return its result; refuse it, unless a limit lets a begun call finish."""
        call, journal = self.journaled_call.call, self.journal
        if call.effect_kind is EffectKind.READS_ONLY or not journal.keeps(self.config):
            if refusal:
                return refusal.build_update(False)
            prior = self.journaled_call.prior_answers
            pad = Scratchpad(self.config)
            inner = pad.skip_places(range(len(prior)))
            try:
                result = yield from self._plan_tool(inner, lambda _: None)
            except CallCutShort as error:
                result = self.journaled_call.build_cut_short_result(error)
            if self.journaled_call.places:
                self.journaled_call.places.note_answers(len(prior))
            answers = build_unjournaled_answers(call.tool, pad.answers[len(prior) :])
            return self._mark(result, answers=answers)
        begun: CallStart = yield self._step(
            partial(journal.begin, call, self.config, self.journaled_call.prior_answers)
        )
        if begun.halt:
            build = partial(self.journaled_call.build_refused_update, begun.halt)
            refusal = Refusal(begun.halt, build)
        finishes = begun.entry.state is CallState.DONE or (refusal is None or refusal.halt.is_limit)
        if refusal and (begun.fresh or not finishes):
            result = self._mark(refusal.build_update(not begun.fresh), begun.entry)
            yield self._build_end_step(begun.entry, result)
            return result
        return (yield from self._plan_begun(begun.entry, begun.fresh))

    def _plan_begun(self, entry: JournalEntry, fresh: bool) -> ExecutionPlan:
        pad = Scratchpad(self.config)
        if fresh:
            return (yield from self._plan_run(entry, entry, pad))
        pad.restore_answers(entry.answers)
        if entry.state is CallState.SUSPENDED:
            # Run a suspended call again: past its question, or only up to it.
            now = entry
            if pad.is_answered(entry):
                answers = pad.collect_answers(entry)
                now = yield self._build_note_step(
                    replace(
                        entry,
                        state=CallState.STARTED,
                        at="",
                        answers=answers,
                        told=note_answers(entry, pad, answers),
                    )
                )
            return (yield from self._plan_run(now, entry, pad))
        if entry.state is CallState.DONE and not entry.lost:
            if self.journaled_call.places:
                self.journaled_call.places.note_answers(len(entry.answers))
            return self.journaled_call.check_recorded(entry.result, self.config)
        if self.journaled_call.call.effect_kind is EffectKind.IDEMPOTENT:
            return (yield from self._plan_run(entry, entry, pad))
        return (yield from self._plan_unknown_outcome(entry, pad))

    def _plan_unknown_outcome(self, entry: JournalEntry, pad: Scratchpad) -> ExecutionPlan:
        """Ask a human whether an interrupted call happened, and act on the answer."""
        answer = MISSING if entry.asked is None else pad.take_answer(entry.asked)
        outcome = None if answer is MISSING else parse_outcome(answer)
        question = build_outcome_question(self.journaled_call.call, entry)
        if outcome is None:
            if entry.asked is None:
                # After all earlier answers, so that none of them is taken for this one's.
                asking = replace(entry, asked=pad.answer_count, answers=pad.answers)
                entry = yield self._build_note_step(asking)
            else:
                pad.discard_answers(entry.asked)
            raise pad.build_interrupt(entry.asked or 0, question, build_outcome_schema())
        place = entry.asked or 0
        questions = note_outcome(entry, question, pad.build_interrupt_id(place), outcome)
        if isinstance(outcome, RunAgain):
            again = JournalEntry(
                CallState.STARTED,
                "",
                entry.version,
                answers=pad.answers,
                ours=(*entry.ours, place),
                told=questions,
            )
            entry = yield self._build_note_step(again)
            return (yield from self._plan_run(entry, entry, pad))
        if isinstance(outcome, Happened):
            result = self.journaled_call.build_reported_result(outcome.result)
        else:
            result = self.journaled_call.build_not_happened_result()
        result = self._mark(result, replace(entry, told=questions))
        yield self._build_end_step(entry, result)
        return result

    def _plan_run(
        self, entry: JournalEntry, before: JournalEntry, pad: Scratchpad
    ) -> ExecutionPlan:
        late = partial(self._record_late_result, entry, pad)
        try:
            result = yield from self._plan_tool(pad.skip_places(entry.ours), late)
        except GraphInterrupt as stop:
            waiting = _build_suspended_entry(entry, stop, pad)
            if waiting != entry:
                yield self._build_note_step(waiting)
            raise
        except CallCutShort as error:
            if self.journaled_call.call.effect_kind is EffectKind.ONCE:
                cut = replace(entry, cut=error.why)
                return (yield from self._plan_unknown_outcome(cut, pad))
            result = self.journaled_call.build_cut_short_result(error)
        except GraphDrained:
            yield self._build_note_step(_build_drained_entry(entry))
            raise
        except Exception as error:
            if is_invalid_resume(error):
                # Back to the state before: at the question, which can be answered again.
                suspended = before.state is CallState.SUSPENDED
                asks = before if suspended else _build_drained_entry(entry)
                yield self._build_note_step(replace(asks, version=entry.version))
            raise
        if self.journaled_call.places:
            self.journaled_call.places.note_answers(pad.answer_count)
            entry = replace(entry, answers=pad.answers)
        result = self._mark(result, entry)
        yield self._build_end_step(entry, result)
        return result

    def _mark(
        self, result: Any, entry: JournalEntry | None = None, answers: Sequence[UserAnswer] = ()
    ) -> Any:
        """Return the call's update, marked with the report to the superior of its agent."""
        call = self.journaled_call
        questions = entry.told if entry else ()
        return mark_user_answers(result, call.call.call_id, (*call.told, *answers), questions)

    def _record_late_result(self, entry: JournalEntry, pad: Scratchpad, result: Any) -> None:
        """Record the result of a call that ended after its task was cancelled."""
        call = self.journaled_call.call
        try:
            if isinstance(result, GraphInterrupt):
                self.journal.note(call, _build_suspended_entry(entry, result, pad), self.config)
            else:
                self.journal.end(call, entry, self._mark(result, entry), self.config)
        except Exception as error:  # noqa: BLE001  logged: there is no caller any more
            # The database may be closed by now; the call stays started, and a human is asked.
            why = describe_error(error, get_failure_log(self.config).redactor)
            LOG.warning("the result of a cancelled call could not be stored: %s", why)

    def _plan_tool(self, config: RunnableConfig, late: LateCallback) -> ExecutionPlan:
        work = self.journaled_call
        configurable = {**config["configurable"], IDEMPOTENCY_KEY: work.call.id}
        inner: RunnableConfig = {**config, "configurable": configurable}
        return work.plan(inner, late)

    def _build_note_step(self, entry: JournalEntry) -> PlanStep:
        return self._step(partial(self.journal.note, self.journaled_call.call, entry, self.config))

    def _build_end_step(self, entry: JournalEntry, result: Any) -> PlanStep:
        call = self.journaled_call.call
        return self._step(partial(self.journal.end, call, entry, result, self.config))

    def _step(self, record: Callable[[], Any]) -> PlanStep:
        return PlanStep(record, partial(self.journal.arun, record, self.config))


def _build_suspended_entry(
    entry: JournalEntry, stop: GraphInterrupt, pad: Scratchpad
) -> JournalEntry:
    """Return the journal entry of a call that waits for answers."""
    interrupts = stop.args[0] if stop.args else ()
    return replace(
        entry,
        state=CallState.SUSPENDED,
        answers=pad.answers,
        waits_for=tuple(interrupt.id for interrupt in interrupts),
        heard=pad.answer_count,
        told=note_questions(entry.told, interrupts),
    )


def _build_drained_entry(entry: JournalEntry) -> JournalEntry:
    """Return the journal entry of a suspended call that waits for no answer."""
    return replace(entry, state=CallState.SUSPENDED, waits_for=(), heard=-1)
