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

from echelons.effects.journal import IDEMPOTENCY_KEY, Begun, Call, Entry, Journal, Nature, State
from echelons.effects.unknown_outcome import (
    Happened,
    Outcome,
    RunAgain,
    outcome_of,
    question,
    schema,
)
from echelons.guards.gate import Halt
from echelons.nodes.tool_execution.scratchpad import MISSING, Scratchpad

LOG = logging.getLogger(__name__)

Late: TypeAlias = Callable[[Any], None]
"""Called in any thread with the result of a call after its task was cancelled."""


class Work(ABC):
    """A call that is recorded in the journal, with the ways to execute it."""

    def __init__(self, call: Call) -> None:
        self.call = call

    @abstractmethod
    def invoke(self, config: RunnableConfig) -> Any:
        """Execute the call and return the node's update."""

    # In an event loop the call may be cancelled and go on in a thread: `late` gets its result.
    @abstractmethod
    async def ainvoke(self, config: RunnableConfig, late: Late) -> Any:
        """Async version of `invoke`."""

    @abstractmethod
    def happened(self, result: str) -> Any:
        """Return the update of a call that happened, with the result that a human states."""

    @abstractmethod
    def not_happened(self) -> Any:
        """Return the update of a call that a human says did not happen."""


class Step(NamedTuple):
    """A blocking operation of a plan, in its sync and its async form."""

    do: Callable[[], Any]
    ado: Callable[[], Awaitable[Any]]


Plan: TypeAlias = Generator[Step, Any, Any]


class Bar(NamedTuple):
    """The gate's refusal to start a call.

    Attributes:
        halt: The gate's verdict.
        answer: Builds the update, given whether the call had begun and was cut short.
    """

    halt: Halt
    answer: Callable[[bool], Any]


class Once:
    """Executes calls at most once.

    Args:
        journal: Records which calls have begun and ended.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def carry_out(self, work: Work, config: RunnableConfig, bar: Bar | None = None) -> Any:
        """Execute a call, or return its recorded result if it has ended before.

        Args:
            work: The call.
            config: The task's config.
            bar: The gate's refusal, if the call must not start.

        Raises:
            GraphInterrupt: The tool asks, or only a human knows whether the call happened.
            CallContested: Another run of the thread executes the same call.
            LeaseLost: Another process runs the thread now.
        """
        carrying = _Carrying(self._journal, work, config)
        plan = carrying.barred(bar) if bar else carrying.plan()
        proceed: Callable[[], Step] = partial(next, plan)
        while True:
            try:
                step = proceed()
            except StopIteration as end:
                return end.value
            try:
                proceed = partial(plan.send, step.do())
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                proceed = partial(plan.throw, error)

    async def acarry_out(self, work: Work, config: RunnableConfig, bar: Bar | None = None) -> Any:
        """Async version of `execute`."""
        carrying = _Carrying(self._journal, work, config)
        plan = carrying.barred(bar) if bar else carrying.plan()
        proceed: Callable[[], Step] = partial(next, plan)
        while True:
            try:
                step = proceed()
            except StopIteration as end:
                return end.value
            try:
                proceed = partial(plan.send, await step.ado())
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                proceed = partial(plan.throw, error)


@dataclass(frozen=True, slots=True)
class _Carrying:
    """One call on its way."""

    journal: Journal
    work: Work
    config: RunnableConfig

    def barred(self, bar: Bar) -> Plan:
        """Refuse a new call; return a finished one's result, and at a limit finish a begun one."""
        call, journal = self.work.call, self.journal
        if call.nature is Nature.READS_ONLY or not journal.keeps(self.config):
            return bar.answer(False)
        begun: Begun = yield self._step(partial(journal.begin, call, self.config))
        entry = begun.entry
        done = entry.state is State.DONE
        if not begun.fresh and (done or bar.halt.kind == "limit"):
            return (yield from self.plan())
        result = bar.answer(not begun.fresh)
        yield self._end(entry, result)
        return result

    def plan(self) -> Plan:
        call, journal = self.work.call, self.journal
        if call.nature is Nature.READS_ONLY or not journal.keeps(self.config):
            return (yield self._working(self.config, _forget))
        pad = Scratchpad(self.config)
        begun: Begun = yield self._step(partial(journal.begin, call, self.config))
        entry = begun.entry
        if begun.fresh:
            return (yield from self._run(entry, entry, pad))
        pad.restore(entry.answers)
        if entry.state is State.SUSPENDED:
            return (yield from self._go_on(entry, pad))
        if entry.state is State.DONE and not entry.lost:
            return entry.result
        if call.nature is Nature.IDEMPOTENT:
            return (yield from self._run(entry, entry, pad))
        return (yield from self._decide(entry, pad))

    def _go_on(self, entry: Entry, pad: Scratchpad) -> Plan:
        """Run a suspended call again: past its question, or only up to it."""
        now = entry
        if pad.goes_on(entry):
            answers = pad.answers_of(entry)
            now = yield self._note(replace(entry, state=State.STARTED, at="", answers=answers))
        return (yield from self._run(now, entry, pad))

    def _decide(self, entry: Entry, pad: Scratchpad) -> Plan:
        """Ask a human whether an interrupted call happened, and act on the answer."""
        outcome = _heard(entry, pad)
        if outcome is None:
            if entry.asked is None:
                # After all earlier answers, so that none of them is taken for this one's.
                asking = replace(entry, asked=pad.heard, answers=pad.answers)
                entry = yield self._note(asking)
            place = entry.asked or 0
            raise pad.ask(place, question(self.work.call, entry), schema())
        if isinstance(outcome, RunAgain):
            entry = yield self._note(_again(entry, pad))
            return (yield from self._run(entry, entry, pad))
        if isinstance(outcome, Happened):
            result = self.work.happened(outcome.result)
        else:
            result = self.work.not_happened()
        yield self._end(entry, result)
        return result

    def _run(self, entry: Entry, before: Entry, pad: Scratchpad) -> Plan:
        late = partial(self._late, entry, pad)
        try:
            result = yield self._working(pad.passing(entry.ours), late)
        except GraphInterrupt as stop:
            waiting = _suspended(entry, stop, pad)
            if waiting != entry:
                yield self._note(waiting)
            raise
        except GraphDrained:
            yield self._note(_stopped(entry))
            raise
        except Exception as error:
            if is_invalid_resume(error):
                # Back to the state before: at the question, which can be answered again.
                asks = before if before.state is State.SUSPENDED else _stopped(entry)
                yield self._note(replace(asks, version=entry.version))
            raise
        yield self._end(entry, result)
        return result

    def _late(self, entry: Entry, pad: Scratchpad, came_to: Any) -> None:
        """Record the result of a call that ended after its task was cancelled."""
        try:
            if isinstance(came_to, GraphInterrupt):
                self.journal.note(self.work.call, _suspended(entry, came_to, pad), self.config)
            else:
                self.journal.end(self.work.call, entry, came_to, self.config)
        except Exception:
            # The database may be closed by now; the call stays started, and a human is asked.
            LOG.warning("what came of a cancelled call could not be written down", exc_info=True)

    def _working(self, config: RunnableConfig, late: Late) -> Step:
        own = _keyed(config, self.work.call.id)
        return Step(partial(self.work.invoke, own), partial(self.work.ainvoke, own, late))

    def _note(self, entry: Entry) -> Step:
        return self._step(partial(self.journal.note, self.work.call, entry, self.config))

    def _end(self, entry: Entry, result: Any) -> Step:
        return self._step(partial(self.journal.end, self.work.call, entry, result, self.config))

    def _step(self, record: Callable[[], Any]) -> Step:
        return Step(record, partial(self.journal.arun, record, self.config))


def call_of(
    config: Mapping[str, Any], call_id: str, tool: str, arguments: Mapping[str, Any], nature: Nature
) -> Call:
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
    return Call(thread_id, task_id, call_id, tool, path, arguments, nature, request_id)


def _heard(entry: Entry, pad: Scratchpad) -> Outcome | None:
    """Return the human's answer to our question; `None` if there is none yet, or it is invalid."""
    if entry.asked is None:
        return None
    answer = pad.answer(entry.asked)
    outcome = None if answer is MISSING else outcome_of(answer)
    if outcome is None:
        pad.forget(entry.asked)
    return outcome


def _again(entry: Entry, pad: Scratchpad) -> Entry:
    """Return the journal entry of a call that a human wants to run again."""
    ours = (*entry.ours, *([] if entry.asked is None else [entry.asked]))
    return Entry(State.STARTED, "", entry.version, answers=pad.answers, ours=ours)


def _suspended(entry: Entry, stop: GraphInterrupt, pad: Scratchpad) -> Entry:
    """Return the journal entry of a call that waits for answers."""
    asked = stop.args[0] if stop.args else ()
    return replace(
        entry,
        state=State.SUSPENDED,
        answers=pad.answers,
        waits_for=tuple(each.id for each in asked),
        heard=pad.heard,
    )


def _stopped(entry: Entry) -> Entry:
    """Return the journal entry of a suspended call that waits for no answer."""
    return replace(entry, state=State.SUSPENDED, waits_for=(), heard=-1)


def _keyed(config: RunnableConfig, key: str) -> RunnableConfig:
    return {**config, "configurable": {**config["configurable"], IDEMPOTENCY_KEY: key}}


def _forget(_: Any) -> None:
    """Drop the late result of a call that is not in the journal."""
