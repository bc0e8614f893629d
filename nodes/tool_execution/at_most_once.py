"""Executes a tool call at most once, or asks a human whether it happened.

The rules are one generator, whose steps are the blocking operations; a sync and an async
loop drive it. `act` uses it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained, GraphInterrupt, is_invalid_resume

from echelons.effects.journal import (
    IDEMPOTENCY_KEY,
    CallStart,
    CallState,
    EffectCall,
    EffectKind,
    Journal,
    JournalEntry,
)
from echelons.effects.unknown_outcome import (
    CallOutcome,
    Happened,
    RunAgain,
    build_outcome_question,
    build_outcome_schema,
    parse_outcome,
)
from echelons.guards.gate import Halt
from echelons.nodes.tool_execution.scratchpad import MISSING, Scratchpad

LOG = logging.getLogger(__name__)

LateCallback: TypeAlias = Callable[[Any], None]
"""Called in any thread with the result of a call after its task was cancelled."""


class JournaledCall(ABC):
    """A call that is recorded in the journal, with the ways to execute it."""

    def __init__(self, call: EffectCall) -> None:
        self.call = call

    @abstractmethod
    def invoke(self, config: RunnableConfig) -> Any:
        """Execute the call and return the node's update."""

    # In an event loop the call may be cancelled and go on in a thread: `late` gets its result.
    @abstractmethod
    async def ainvoke(self, config: RunnableConfig, on_late_result: LateCallback) -> Any:
        """Async version of `invoke`."""

    @abstractmethod
    def build_reported_result(self, result: str) -> Any:
        """Return the update of a call that happened, with the result that a human states."""

    @abstractmethod
    def build_not_happened_result(self) -> Any:
        """Return the update of a call that a human says did not happen."""


class PlanStep(NamedTuple):
    """A blocking operation of a plan, in its sync and its async form."""

    run: Callable[[], Any]
    arun: Callable[[], Awaitable[Any]]


ExecutionPlan: TypeAlias = Generator[PlanStep, Any, Any]


class Refusal(NamedTuple):
    """The gate's refusal to start a call.

    Attributes:
        halt: The gate's verdict.
        build_update: Builds the update, given whether the call had begun and was cut short.
    """

    halt: Halt
    build_update: Callable[[bool], Any]


class AtMostOnce:
    """Executes calls at most once.

    Args:
        journal: Records which calls have begun and ended.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def execute(
        self, call: JournaledCall, config: RunnableConfig, refusal: Refusal | None = None
    ) -> Any:
        """Execute a call, or return its recorded result if it has ended before.

        Args:
            call: The call.
            config: The task's config.
            refusal: The gate's refusal, if the call must not start.

        Raises:
            GraphInterrupt: The tool asks, or only a human knows whether the call happened.
            CallContested: Another run of the thread executes the same call.
            LeaseLost: Another process runs the thread now.
        """
        carrying = _Execution(self._journal, call, config)
        plan = carrying.plan_refused(refusal) if refusal else carrying.plan_allowed()
        proceed: Callable[[], PlanStep] = partial(next, plan)
        while True:
            try:
                step = proceed()
            except StopIteration as end:
                return end.value
            try:
                proceed = partial(plan.send, step.run())
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                proceed = partial(plan.throw, error)

    async def aexecute(
        self, call: JournaledCall, config: RunnableConfig, refusal: Refusal | None = None
    ) -> Any:
        """Async version of `execute`."""
        carrying = _Execution(self._journal, call, config)
        plan = carrying.plan_refused(refusal) if refusal else carrying.plan_allowed()
        proceed: Callable[[], PlanStep] = partial(next, plan)
        while True:
            try:
                step = proceed()
            except StopIteration as end:
                return end.value
            try:
                proceed = partial(plan.send, await step.arun())
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                proceed = partial(plan.throw, error)


@dataclass(frozen=True, slots=True)
class _Execution:
    """One call on its way."""

    journal: Journal
    journaled_call: JournaledCall
    config: RunnableConfig

    def plan_refused(self, refusal: Refusal) -> ExecutionPlan:
        """Refuse a new call; return a finished one's result, and at a limit finish a begun one."""
        call, journal = self.journaled_call.call, self.journal
        if call.effect_kind is EffectKind.READS_ONLY or not journal.keeps(self.config):
            return refusal.build_update(False)
        begun: CallStart = yield self._step(partial(journal.begin, call, self.config))
        entry = begun.entry
        done = entry.state is CallState.DONE
        if not begun.fresh and (done or refusal.halt.kind == "limit"):
            return (yield from self.plan_allowed())
        result = refusal.build_update(not begun.fresh)
        yield self._build_end_step(entry, result)
        return result

    def plan_allowed(self) -> ExecutionPlan:
        call, journal = self.journaled_call.call, self.journal
        if call.effect_kind is EffectKind.READS_ONLY or not journal.keeps(self.config):
            return (yield self._build_run_step(self.config, _ignore_late_result))
        pad = Scratchpad(self.config)
        begun: CallStart = yield self._step(partial(journal.begin, call, self.config))
        entry = begun.entry
        if begun.fresh:
            return (yield from self._plan_run(entry, entry, pad))
        pad.restore_answers(entry.answers)
        if entry.state is CallState.SUSPENDED:
            return (yield from self._plan_resume(entry, pad))
        if entry.state is CallState.DONE and not entry.lost:
            return entry.result
        if call.effect_kind is EffectKind.IDEMPOTENT:
            return (yield from self._plan_run(entry, entry, pad))
        return (yield from self._plan_unknown_outcome(entry, pad))

    def _plan_resume(self, entry: JournalEntry, pad: Scratchpad) -> ExecutionPlan:
        """Run a suspended call again: past its question, or only up to it."""
        now = entry
        if pad.is_answered(entry):
            answers = pad.collect_answers(entry)
            now = yield self._build_note_step(
                replace(entry, state=CallState.STARTED, at="", answers=answers)
            )
        return (yield from self._plan_run(now, entry, pad))

    def _plan_unknown_outcome(self, entry: JournalEntry, pad: Scratchpad) -> ExecutionPlan:
        """Ask a human whether an interrupted call happened, and act on the answer."""
        outcome = _read_decision(entry, pad)
        if outcome is None:
            if entry.asked is None:
                # After all earlier answers, so that none of them is taken for this one's.
                asking = replace(entry, asked=pad.answer_count, answers=pad.answers)
                entry = yield self._build_note_step(asking)
            place = entry.asked or 0
            raise pad.build_interrupt(
                place,
                build_outcome_question(self.journaled_call.call, entry),
                build_outcome_schema(),
            )
        if isinstance(outcome, RunAgain):
            entry = yield self._build_note_step(_build_restarted_entry(entry, pad))
            return (yield from self._plan_run(entry, entry, pad))
        if isinstance(outcome, Happened):
            result = self.journaled_call.build_reported_result(outcome.result)
        else:
            result = self.journaled_call.build_not_happened_result()
        yield self._build_end_step(entry, result)
        return result

    def _plan_run(
        self, entry: JournalEntry, before: JournalEntry, pad: Scratchpad
    ) -> ExecutionPlan:
        late = partial(self._record_late_result, entry, pad)
        try:
            result = yield self._build_run_step(pad.skip_places(entry.ours), late)
        except GraphInterrupt as stop:
            waiting = _build_suspended_entry(entry, stop, pad)
            if waiting != entry:
                yield self._build_note_step(waiting)
            raise
        except GraphDrained:
            yield self._build_note_step(_build_drained_entry(entry))
            raise
        except Exception as error:
            if is_invalid_resume(error):
                # Back to the state before: at the question, which can be answered again.
                asks = (
                    before if before.state is CallState.SUSPENDED else _build_drained_entry(entry)
                )
                yield self._build_note_step(replace(asks, version=entry.version))
            raise
        yield self._build_end_step(entry, result)
        return result

    def _record_late_result(self, entry: JournalEntry, pad: Scratchpad, result: Any) -> None:
        """Record the result of a call that ended after its task was cancelled."""
        try:
            if isinstance(result, GraphInterrupt):
                self.journal.note(
                    self.journaled_call.call,
                    _build_suspended_entry(entry, result, pad),
                    self.config,
                )
            else:
                self.journal.end(self.journaled_call.call, entry, result, self.config)
        except Exception:
            # The database may be closed by now; the call stays started, and a human is asked.
            LOG.warning("what came of a cancelled call could not be written down", exc_info=True)

    def _build_run_step(self, config: RunnableConfig, late: LateCallback) -> PlanStep:
        own = _with_idempotency_key(config, self.journaled_call.call.id)
        return PlanStep(
            partial(self.journaled_call.invoke, own),
            partial(self.journaled_call.ainvoke, own, late),
        )

    def _build_note_step(self, entry: JournalEntry) -> PlanStep:
        return self._step(partial(self.journal.note, self.journaled_call.call, entry, self.config))

    def _build_end_step(self, entry: JournalEntry, result: Any) -> PlanStep:
        return self._step(
            partial(self.journal.end, self.journaled_call.call, entry, result, self.config)
        )

    def _step(self, record: Callable[[], Any]) -> PlanStep:
        return PlanStep(record, partial(self.journal.arun, record, self.config))


def build_journal_call(
    config: Mapping[str, Any],
    call_id: str,
    tool: str,
    arguments: Mapping[str, Any],
    nature: EffectKind,
) -> EffectCall:
    """Return the journal's description of the call that a LangGraph task executes.

    Args:
        config: The config of the task's node.
        call_id: The call's id in the model's message.
        tool: Name of the tool.
        arguments: The call's arguments.
        nature: The effect of executing it twice.
    """
    given, metadata = config["configurable"], config.get("metadata") or {}
    # The namespace of a task ends with its node and its id.
    task_id = str(given.get("checkpoint_ns", "")).rpartition(":")[2]
    path = str(metadata.get("agent_path", ""))
    thread_id = str(given.get("thread_id", ""))
    request_id = str(metadata.get("request_id", ""))
    return EffectCall(thread_id, task_id, call_id, tool, path, arguments, nature, request_id)


def _read_decision(entry: JournalEntry, pad: Scratchpad) -> CallOutcome | None:
    """Return the human's answer to our question; `None` if there is none yet, or it is invalid."""
    if entry.asked is None:
        return None
    answer = pad.take_answer(entry.asked)
    outcome = None if answer is MISSING else parse_outcome(answer)
    if outcome is None:
        pad.discard_answers(entry.asked)
    return outcome


def _build_restarted_entry(entry: JournalEntry, pad: Scratchpad) -> JournalEntry:
    """Return the journal entry of a call that a human wants to run again."""
    ours = (*entry.ours, *([] if entry.asked is None else [entry.asked]))
    return JournalEntry(CallState.STARTED, "", entry.version, answers=pad.answers, ours=ours)


def _build_suspended_entry(
    entry: JournalEntry, stop: GraphInterrupt, pad: Scratchpad
) -> JournalEntry:
    """Return the journal entry of a call that waits for answers."""
    asked = stop.args[0] if stop.args else ()
    return replace(
        entry,
        state=CallState.SUSPENDED,
        answers=pad.answers,
        waits_for=tuple(each.id for each in asked),
        heard=pad.answer_count,
    )


def _build_drained_entry(entry: JournalEntry) -> JournalEntry:
    """Return the journal entry of a suspended call that waits for no answer."""
    return replace(entry, state=CallState.SUSPENDED, waits_for=(), heard=-1)


def _with_idempotency_key(config: RunnableConfig, key: str) -> RunnableConfig:
    return {**config, "configurable": {**config["configurable"], IDEMPOTENCY_KEY: key}}


def _ignore_late_result(_: Any) -> None:
    """Drop the late result of a call that is not in the journal."""
