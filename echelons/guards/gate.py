"""The gate of a run: limits, stops, pauses and backpressure, checked before each step."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from echelons.plans import PlanStep
from echelons.run_context import get_context

T = TypeVar("T")
HALT_KEY = "halt"
"""Key of the last message's `response_metadata` for the reason why the agent ended early."""
PAUSE_KEY = "echelons_pause"
"""Key that marks the interrupt of a pause, as opposed to a question to a human."""


class Backpressure:
    """Holds back the steps of one run; its consumer and the threads of the steps share it.

    A step is named by the id of its LangGraph task.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: set[str] = set()
        self._held: dict[str, Future[None]] = {}
        self._awaiting: dict[str, list[asyncio.Future[None]]] = {}
        self._has_loop = False
        self._is_lifted = False
        self._is_closed = False
        self._is_ending = False

    @property
    def is_open(self) -> bool:
        """Whether steps may begin: its consumer has not left, and its loop is not ending."""
        return not (self._is_closed or self._is_ending)

    def guard_loop(self, stack: ExitStack) -> None:
        """Hold back steps in threads, until the stack of the root's loop is unwound.

        A loop waits for its threads when it ends, also after an error or Ctrl-C: then they must
        not wait for events to be taken.
        """
        self._has_loop, self._is_ending = True, False
        stack.callback(self._end_loop)

    def take_start(self, task: str) -> None:
        """Let a step begin: its consumer has taken its start, and asks for more."""
        with self._lock:
            self._taken.add(task)
            held, awaiting = self._held.pop(task, None), self._awaiting.pop(task, None)
        if held:
            held.set_result(None)
        if awaiting:
            _release(awaiting)

    def take_end(self, task: str) -> None:
        """Forget a step that has ended: it may run again, after an answer."""
        with self._lock:
            self._taken.discard(task)

    def lift(self) -> None:
        """Hold back no more steps: its consumer asks for the result alone, and takes no events."""
        self._is_lifted = True
        self._release_held()

    def forget_starts(self) -> None:
        """Forget the steps that were held: they begin again, without having ended."""
        with self._lock:
            self._taken.clear()

    def close(self) -> None:
        """Let no more steps begin: its consumer has left."""
        self._is_closed = True
        self._release_held()

    def wait_for_start(self, task: str) -> bool:
        """Wait until a step may begin; return whether it may, or must not begin any more.

        Only threads of a guarded loop wait here: an event loop waits in `await_start`.
        """
        if self._has_loop:
            with self._lock:
                held = self._held.setdefault(task, Future()) if self._must_wait(task) else None
            if held:
                held.result()
        return self.is_open

    async def await_start(self, task: str) -> None:
        """Wait in an event loop until the start of a step is taken, or nothing begins any more."""
        with self._lock:
            if not self._must_wait(task):
                return
            # Every waiting task has a future, as a cancelled task cancels the one that it awaits.
            held = asyncio.get_running_loop().create_future()
            self._awaiting.setdefault(task, []).append(held)
        await held

    def build_start_step(self, task: str) -> PlanStep:
        """Return `await_start` as a step of a plan; threads wait where their step begins."""
        return PlanStep(lambda: None, partial(self.await_start, task))

    def _must_wait(self, task: str) -> bool:
        return not self._is_lifted and task not in self._taken and self.is_open

    def _end_loop(self) -> None:
        self._is_ending = True
        self._release_held()

    def _release_held(self) -> None:
        with self._lock:
            held, self._held = self._held, {}
            awaiting, self._awaiting = self._awaiting, {}
        for future in held.values():
            future.set_result(None)
        for futures in awaiting.values():
            _release(futures)


def _release(futures: Sequence[asyncio.Future[None]]) -> None:
    """Set the futures of event loops, from the thread of a loop or from any other."""
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    for future in futures:
        loop = future.get_loop()
        if loop is running:
            _set_unless_done(future)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(_set_unless_done, future)


def _set_unless_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Step(StrEnum):
    """The kind of work that a node is about to begin."""

    MODEL = "model call"
    TOOL = "tool call"
    SUBORDINATE = "run of a subordinate"
    PERMISSION = "question whether a call may run"
    RETURN = "answer that is a tool's result"


@dataclass(frozen=True, slots=True)
class Halt:
    """An order to begin no more steps: the agent ends with what it has."""

    kind: Literal[
        "limit", "budget", "over_grant", "stopped", "timeout", "refused", "repeated", "dismissed"
    ]
    why: str
    finishes: bool = False  # steps that have begun come to their end

    @property
    def reason(self) -> str:
        """The reason in one line, as in a response."""
        return f"{self.kind}: {self.why}"

    @property
    def status(self) -> Literal["partial", "unable"]:
        """The status of a response: a partial result after a limit or too many calls."""
        return "partial" if self.is_limit or self.kind in ("refused", "repeated") else "unable"

    @property
    def is_limit(self) -> bool:
        """Whether a limit or a budget is used up: what has begun ends by itself."""
        return self.kind in ("limit", "budget")


@dataclass(frozen=True, slots=True)
class Pause:
    """An order to the whole subtree at a path: begin no model call until the pause is lifted."""

    path: str

    @property
    def marker(self) -> dict[str, str]:
        """The value of the interrupt that represents the pause."""
        return {PAUSE_KEY: self.path}


class HeldAttempts:
    """When the attempts began whose steps a run holds to deliver an answer, by their namespaces.

    The time of a held subordinate goes on when it is resumed, as it waits for no answer, while that
    of an agent which has waited for a person starts again.
    """

    def __init__(self) -> None:
        self._begun: dict[str, tuple[str, float]] = {}

    def find_begin(self, config: Mapping[str, Any]) -> float | None:
        """Return when the attempt of a config began, `None` if it was not held."""
        attempt = self._begun.get(_get_namespace(config))
        return attempt[1] if attempt else None

    def keep(self, config: Mapping[str, Any], begun: float) -> None:
        """Keep when the attempt of a config began, which is held now."""
        path = str(config["metadata"].get("agent_path", ""))
        self._begun[_get_namespace(config)] = path, begun

    def forget(self, config: Mapping[str, Any]) -> None:
        """Forget an attempt that waits for a person, or has ended."""
        self._begun.pop(_get_namespace(config), None)

    def restart(self, paths: Collection[str]) -> None:
        """Let the time of the agents at some paths start again, as a person has answered there."""
        for namespace, (path, _) in [*self._begun.items()]:
            if path in paths:
                del self._begun[namespace]


def _get_namespace(config: Mapping[str, Any]) -> str:
    return str(config["configurable"].get("checkpoint_ns", ""))


class CallUsage(NamedTuple):
    """The usage of a model call."""

    model: str  # as it reports its name
    usage: Mapping[str, Any] | None  # as LangChain's `UsageMetadata`; `None` if it reports none
    is_estimated: bool = False  # an estimator has counted the tokens
    fault: str = ""  # why the tokens are not known


InnerRow: TypeAlias = Literal["", "here", "elsewhere"]
"""The place of the row of a call of an inner tree with a thread of its own: in this database
or in another one."""


class NotedCall(NamedTuple):
    """A model call that is recorded when it has ended, as no reply of the thread shows it."""

    used: CallUsage
    estimated_tokens: int = 0  # counted if nothing is reported
    was_admitted: bool = False  # the gate has counted it as a step before it began
    has_record: bool = False  # it was reserved and charged, so that it has a record
    reply_id: str = ""  # the reply does not count again if a thread has it
    # It was the agent's own step, whose reply the thread gets: only what is estimated is recorded.
    is_reply: bool = False
    has_failed: bool = False  # it has no reply: only a budget is charged, as its provider may
    has_left: bool = False  # the gate has counted its tokens when it ended
    # It was made by a tree that a step runs, whose row stands in another thread.
    inner: InnerRow = ""

    @property
    def tokens(self) -> int:
        """The tokens that it counts with: those reported, else the estimate."""
        usage = self.used.usage
        if usage is None:
            return self.estimated_tokens
        return int(usage.get("input_tokens", 0) + usage.get("output_tokens", 0))


UsageListener: TypeAlias = Callable[[NotedCall], object]
"""Called with each noted model call of a run, from any thread."""


Cut: TypeAlias = Callable[[Sequence[Any]], None]
"""Cuts a reply off, with its chunks so far."""


class StepGuard:
    """The decisions of a feature in the gate of one run. A subclass overrides what it needs.

    `Ledger.commit` may roll a transaction back and make it again: what a guard knows may change
    only once it was committed, in what its methods return.
    """

    name: ClassVar[str]

    def refresh(self, open_: Any) -> Callable[[], object] | None:
        """Read what it knows again: something was written to the ledger since.

        Return what to call when all is read, for listeners.
        """
        raise NotImplementedError

    def find_order(self, path: str, step: Step | None) -> Halt | None:
        """Return the order that an agent is under, by what was read last."""
        raise NotImplementedError

    def read_order(self, open_: Any, path: str, *, is_fresh: bool) -> Halt | None:
        """Return the order that an agent is under in an open transaction.

        `is_fresh` says that nothing was written since the last `refresh`.
        """
        raise NotImplementedError

    def list_closed(self, path: str) -> Collection[str]:
        """Return the paths below an agent, as it sees them, that take no task any more."""
        return ()

    def take_cut(self, namespace: str, path: str) -> Cut | None:
        """Return what cuts off the reply of an agent at one of its tokens; `None` for nothing.

        `namespace` is that of the task which calls the model.
        """
        raise NotImplementedError

    def concerns(self, step: Step, config: Mapping[str, Any], claims: Sequence[Any]) -> bool:
        """Return whether it decides on a step; before the transaction, and once."""
        raise NotImplementedError

    def admit(
        self, open_: Any, step: Step, config: Mapping[str, Any], claims: Sequence[Any]
    ) -> Halt | None:
        """Return why a step must not begin, or take what it needs."""
        raise NotImplementedError

    def finish(self, open_: Any) -> Callable[[], object] | None:
        """Write what is last in the transaction, and return what to call after its commit."""
        return None

    def admit_inner(
        self, open_: Any, step: Step, config: Mapping[str, Any], rows: InnerRow
    ) -> Halt | None:
        """Return why a tree within must not begin a step; its rows stand in another thread."""
        raise NotImplementedError

    def note_call(
        self, call: NotedCall, config: Mapping[str, Any], *, limits_tokens: bool
    ) -> tuple[NotedCall, Callable[[Any], object] | None]:
        """Return a model call that has ended as the gate counts it, and what records it."""
        raise NotImplementedError

    def close(self) -> Callable[[Any], Callable[[], object]] | None:
        """Return what is left to write at the end of the run, `None` for nothing."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class OuterStep:
    """The step of an agent that runs another tree, whose steps its own gate counts, too."""

    gate: Gate
    # Of the agent's node.
    config: Mapping[str, Any]
    # Empty if the inner tree is stored with the outer one.
    rows: InnerRow = ""

    def admit(self, step: Step, inner: Mapping[str, Any]) -> Halt | None:
        """Count a step of the agent with an inner config, or return the order that forbids it."""
        return self.gate.admit_inner(step, self._build_config(inner), self.rows)

    def count(
        self, call: NotedCall, inner: Mapping[str, Any], *, is_step: bool = False
    ) -> Halt | None:
        """Count a model call that has ended; return a `Halt` if its reply is not acted on."""
        # The reply of an agent's own step has its row when it leaves.
        rows: InnerRow = "" if call.is_reply or call.has_left else self.rows
        call = call._replace(inner=rows, has_record=not rows)
        return self.gate.count_inner(call, self._build_config(inner), is_step=is_step)

    def _build_config(self, inner: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the config of the agent's node, with the inner agent below it."""
        metadata, path = self.config["metadata"], inner["metadata"]["agent_path"]
        if self.rows:
            path = f"{metadata['agent_path']}/{path}"
        below = {"agent_path": path, "agent_thread_id": inner["metadata"]["agent_thread_id"]}
        return {**self.config, "metadata": {**metadata, **below}}


class Gate(Protocol):
    """Decides whether an agent of a run may begin its next step.

    The methods take the config of the calling node, whose metadata identifies the agent, and raise
    `StorageError` if the ledger could not be read or written.
    """

    # `enter` waits for it in threads; in an event loop, the node does before.
    backpressure: Backpressure | None
    held_attempts: HeldAttempts | None

    @property
    def hidden_messages(self) -> frozenset[str]:
        """The ids of the messages of its thread that no model is shown."""
        ...

    @property
    def guards(self) -> Mapping[str, Any]:
        """The guards of its run, by the names of their features."""
        ...

    def read_order(self, open_: Any, config: Mapping[str, Any]) -> Halt | None:
        """Return the order of a guard that an agent is under in an open transaction of the ledger.

        With it nothing begins that is recorded in the transaction, also if the order was given
        since the agent was admitted.
        """
        ...

    def enter(
        self, step: Step, config: Mapping[str, Any], claims: Sequence[Any] = ()
    ) -> Halt | Pause | None:
        """Count a step, or return the order that forbids it.

        Only model calls are paused. An approval is not counted, and only a stop forbids it. The
        run of a subordinate is also forbidden if its guards cannot have what it claims.
        """

    def check_hold(self) -> None:
        """Hold a step that is not counted, of a foreign graph, while the run has to become idle."""

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count the tokens of a model's reply; return a `Halt` if it must not be acted on."""

    @property
    def limits_tokens(self) -> bool:
        """Whether the tokens of its models are limited."""
        ...

    def note_call(self, call: NotedCall, config: Mapping[str, Any]) -> None:
        """Count and record a model call that has ended, which no reply of a thread reports."""

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; all of it again if the ledger was busy."""
        ...

    def admit_inner(self, step: Step, config: Mapping[str, Any], rows: InnerRow) -> Halt | None:
        """Count a step of a tree that the agent's step runs, or return the order that forbids it.

        The agent's step has begun, so that no pause and no answer holds it.
        """

    def count_inner(
        self, call: NotedCall, config: Mapping[str, Any], *, is_step: bool = False
    ) -> Halt | None:
        """Count a model call of such a tree that has ended, whatever limit that reaches.

        Return a `Halt` if its reply must not be acted on.
        """

    def find_left(self) -> Mapping[str, int | float]:
        """Return what is left of the limits, by their names, for a tree in another process."""
        ...

    def get_time(self) -> datetime:
        """Return the time of the clock by which the deadlines of questions are set, in UTC."""
        ...

    def note_deadline(self, deadline: datetime) -> None:
        """Let a question's deadline be looked at before each step, as well as at the run's end."""

    def find_halt(self, config: Mapping[str, Any]) -> Halt | None:
        """Return the order that ends the agent, by what was read last; it never blocks."""
        ...

    def listen(
        self, config: Mapping[str, Any], callback: Callable[[Halt], None]
    ) -> Callable[[], None]:
        """Register a callback from any thread for a stop; return a function to remove it."""
        ...


class OpenGate:
    """The gate of a node that runs outside of a tree: it admits every step."""

    backpressure: Backpressure | None = None
    held_attempts: HeldAttempts | None = None
    hidden_messages: frozenset[str] = frozenset()

    guards: Mapping[str, Any] = {}

    def read_order(self, open_: Any, config: Mapping[str, Any]) -> None:
        """Find none."""

    def enter(self, step: Step, config: Mapping[str, Any], claims: Sequence[Any] = ()) -> None:
        """Admit the step."""

    def check_hold(self) -> None:
        """Hold nothing."""

    def leave(self, reply: Any, config: Mapping[str, Any]) -> None:
        """Admit the reply."""

    @property
    def limits_tokens(self) -> bool:
        """Limit nothing."""
        return False

    def note_call(self, call: NotedCall, config: Mapping[str, Any]) -> None:
        """Record nothing."""

    def admit_inner(self, step: Step, config: Mapping[str, Any], rows: InnerRow) -> None:
        """Admit the step."""

    def count_inner(
        self, call: NotedCall, config: Mapping[str, Any], *, is_step: bool = False
    ) -> None:
        """Count nothing."""

    def find_left(self) -> Mapping[str, int | float]:
        """Limit nothing."""
        return {}

    async def arun(self, work: Callable[[], T]) -> T:
        """Call it at once: nothing here waits."""
        return work()

    def get_time(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)

    def note_deadline(self, deadline: datetime) -> None:
        """Look at nothing."""

    def find_halt(self, config: Mapping[str, Any]) -> None:
        """Find none."""

    def listen(
        self, config: Mapping[str, Any], callback: Callable[[Halt], None]
    ) -> Callable[[], None]:
        """Do nothing: there is no stop to report."""
        return lambda: None


OPEN_GATE = OpenGate()


def get_gate(config: Mapping[str, Any] | None) -> Gate:
    """Return the gate in a run's config, or an open one."""
    return get_context(config).gate or OPEN_GATE


def is_pause(value: object) -> bool:
    """Return whether the value of an interrupt is a pause rather than a question."""
    return isinstance(value, Mapping) and value.keys() == {PAUSE_KEY}


class ScopedGate(ABC):
    """The gate of a subordinate that may have to end before the run: at a deadline or a lost race.

    It wraps the superior's gate, and stands in the subordinate's config.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.arun = gate.arun
        self.backpressure = gate.backpressure
        self.held_attempts = gate.held_attempts

    @property
    def hidden_messages(self) -> frozenset[str]:
        """The ids of the messages of its thread that no model is shown."""
        return self.gate.hidden_messages

    @property
    def guards(self) -> Mapping[str, Any]:
        """The guards of its run."""
        return self.gate.guards

    def read_order(self, open_: Any, config: Mapping[str, Any]) -> Halt | None:
        """Return the order of a guard that an agent is under in an open transaction."""
        return self.gate.read_order(open_, config)

    @property
    @abstractmethod
    def halt(self) -> Halt | None:
        """The order to begin no more steps, or `None`."""

    def enter(
        self, step: Step, config: Mapping[str, Any], claims: Sequence[Any] = ()
    ) -> Halt | Pause | None:
        """Count a step, or return the order that forbids it."""
        halt = None if step is Step.PERMISSION else self.halt
        return halt or self.gate.enter(step, config, claims)

    def check_hold(self) -> None:
        """Hold a step that is not counted, of a foreign graph, while the run has to become idle."""
        self.gate.check_hold()

    def leave(self, reply: Any, config: Mapping[str, Any]) -> Halt | None:
        """Count the tokens of a reply; return a `Halt` if it must not be acted on."""
        return self.gate.leave(reply, config)

    @property
    def limits_tokens(self) -> bool:
        """Whether the tokens of its models are limited."""
        return self.gate.limits_tokens

    def note_call(self, call: NotedCall, config: Mapping[str, Any]) -> None:
        """Count and record a model call that has ended."""
        self.gate.note_call(call, config)

    def admit_inner(self, step: Step, config: Mapping[str, Any], rows: InnerRow) -> Halt | None:
        """Count a step of a tree that the agent's step runs, or return what forbids it."""
        return self.halt or self.gate.admit_inner(step, config, rows)

    def count_inner(
        self, call: NotedCall, config: Mapping[str, Any], *, is_step: bool = False
    ) -> Halt | None:
        """Count a model call of such a tree that has ended."""
        return self.gate.count_inner(call, config, is_step=is_step)

    def find_left(self) -> Mapping[str, int | float]:
        """Return what is left of the limits, by their names."""
        return self.gate.find_left()

    def get_time(self) -> datetime:
        """Return the time of the clock by which the deadlines of questions are set, in UTC."""
        return self.gate.get_time()

    def note_deadline(self, deadline: datetime) -> None:
        """Let a question's deadline be looked at before each step."""
        self.gate.note_deadline(deadline)

    def find_halt(self, config: Mapping[str, Any]) -> Halt | None:
        """Return the order that ends the agent, by what was read last."""
        return self.gate.find_halt(config) or self.halt

    def listen(
        self, config: Mapping[str, Any], callback: Callable[[Halt], None]
    ) -> Callable[[], None]:
        """Register a callback for when the agent is stopped; return a function to remove it."""
        return self.gate.listen(config, callback)
