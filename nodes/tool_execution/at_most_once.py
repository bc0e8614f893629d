"""``Once``: carries out a call at most once, or asks a human whether it happened.

The rules are one plan, in which each step is something to wait for; ``carry_out`` and
``acarry_out`` do the waiting. ``act`` uses it.
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
"""Is told, in any thread, what a call came to after everybody has stopped waiting for it."""


class Work(ABC):
    """One call, as a node carries it out."""

    def __init__(self, call: Call) -> None:
        self.call = call

    @abstractmethod
    def invoke(self, config: RunnableConfig) -> Any:
        """Carry it out with a config."""

    @abstractmethod
    async def ainvoke(self, config: RunnableConfig, late: Late) -> Any:
        """Do the same in an event loop, where it may be cancelled and go on in a thread."""

    @abstractmethod
    def happened(self, result: str) -> Any:
        """Return what it came to, as a human tells it."""

    @abstractmethod
    def not_happened(self) -> Any:
        """Return what a call comes to that was not carried out."""


class Step(NamedTuple):
    """Something to wait for, in either world."""

    do: Callable[[], Any]
    ado: Callable[[], Awaitable[Any]]


Plan: TypeAlias = Generator[Step, Any, Any]


class Bar(NamedTuple):
    """What keeps a call from beginning.

    Attributes:
        halt: Why it must not.
        answer: Makes its answer, told whether it had begun before and was cut short.
    """

    halt: Halt
    answer: Callable[[bool], Any]


class Once:
    """Carries out calls under a journal.

    Args:
        journal: Where what has begun is written down.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def carry_out(self, work: Work, config: RunnableConfig, bar: Bar | None = None) -> Any:
        """Carry a call out, or return what it came to when that was done before.

        Args:
            work: The call.
            config: The task's config.
            bar: What keeps it from beginning.

        Raises:
            GraphInterrupt: The tool asks, or nobody but a human knows whether it happened.
            CallContested: Another run of the thread carries out the same call.
            LeaseLost: Somebody else runs the thread now.
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
        """Do what ``carry_out`` does in an event loop.

        Raises:
            GraphInterrupt: The tool asks, or nobody but a human knows whether it happened.
            CallContested: Another run of the thread carries out the same call.
            LeaseLost: Somebody else runs the thread now.
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
        """Begin nothing: what is done is done, and a limit lets what has begun go on."""
        call, journal = self.work.call, self.journal
        if call.nature is Nature.READS_ONLY or not journal.keeps(self.config):
            return bar.answer(False)
        given = (call, self.config)
        begun: Begun = yield Step(partial(journal.begin, *given), partial(journal.abegin, *given))
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
        given = (call, self.config)
        begun: Begun = yield Step(partial(journal.begin, *given), partial(journal.abegin, *given))
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
        """Run a call again that was suspended: past its question, or only up to it."""
        now = entry
        if pad.goes_on(entry):
            answers = pad.answers_of(entry)
            now = yield self._note(replace(entry, state=State.STARTED, at="", answers=answers))
        return (yield from self._run(now, entry, pad))

    def _decide(self, entry: Entry, pad: Scratchpad) -> Plan:
        """Have a human say what became of a call that was cut short."""
        outcome = _heard(entry, pad)
        if outcome is None:
            if entry.asked is None:
                # Behind whatever was answered before, so that no old answer is taken for it.
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
                # It stands where it stood: at its question, which can be answered again.
                asks = before if before.state is State.SUSPENDED else _stopped(entry)
                yield self._note(replace(asks, version=entry.version))
            raise
        yield self._end(entry, result)
        return result

    def _late(self, entry: Entry, pad: Scratchpad, came_to: Any) -> None:
        """Write down what came of a call after it was cancelled."""
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
        given = (self.work.call, entry, self.config)
        return Step(partial(self.journal.note, *given), partial(self.journal.anote, *given))

    def _end(self, entry: Entry, result: Any) -> Step:
        given = (self.work.call, entry, result, self.config)
        return Step(partial(self.journal.end, *given), partial(self.journal.aend, *given))


def call_of(
    config: Mapping[str, Any], call_id: str, tool: str, arguments: Mapping[str, Any], nature: Nature
) -> Call:
    """Return the call that a task makes.

    Args:
        config: The config of the task's node.
        call_id: The call's id in the model's message.
        tool: Whom it calls.
        arguments: What it is given.
        nature: What it does to carry it out twice.
    """
    given, metadata = config["configurable"], config.get("metadata") or {}
    # The namespace of a task ends with its node and its id.
    task_id = str(given.get("checkpoint_ns", "")).rpartition(":")[2]
    path = str(metadata.get("agent_path", ""))
    thread_id = str(given.get("thread_id", ""))
    request_id = str(metadata.get("request_id", ""))
    return Call(thread_id, task_id, call_id, tool, path, arguments, nature, request_id)


def _heard(entry: Entry, pad: Scratchpad) -> Outcome | None:
    """Return what a human has said to our question, if it was asked and is answered."""
    if entry.asked is None:
        return None
    answer = pad.answer(entry.asked)
    outcome = None if answer is MISSING else outcome_of(answer)
    if outcome is None:
        pad.forget(entry.asked)
    return outcome


def _again(entry: Entry, pad: Scratchpad) -> Entry:
    """Return the entry of a call that a human has made run again."""
    ours = (*entry.ours, *([] if entry.asked is None else [entry.asked]))
    return Entry(State.STARTED, "", entry.version, answers=pad.answers, ours=ours)


def _suspended(entry: Entry, stop: GraphInterrupt, pad: Scratchpad) -> Entry:
    """Return the entry of a call that waits for answers."""
    asked = stop.args[0] if stop.args else ()
    return replace(
        entry,
        state=State.SUSPENDED,
        answers=pad.answers,
        waits_for=tuple(each.id for each in asked),
        heard=pad.heard,
    )


def _stopped(entry: Entry) -> Entry:
    """Return the entry of a call that goes on by itself as soon as it is made again."""
    return replace(entry, state=State.SUSPENDED, waits_for=(), heard=-1)


def _keyed(config: RunnableConfig, key: str) -> RunnableConfig:
    return {**config, "configurable": {**config["configurable"], IDEMPOTENCY_KEY: key}}


def _forget(_: Any) -> None:
    """Take no note of what no journal is kept of."""
