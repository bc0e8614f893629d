"""The journal of a thread: the effects of its calls, and its failures, kept in the ledger."""

from __future__ import annotations

import logging
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.types import Command

from echelons.checkpoints.clock import utc_now
from echelons.checkpoints.coordination.records import Record, Records
from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.ledger import Ledger, Transaction, VersionedValue, build_key, get_ledger
from echelons.checkpoints.ledger.sqlite_ledger import SqliteTransaction
from echelons.checkpoints.ledger.transaction import MAX_RECORD_SIZE
from echelons.checkpoints.queries import LedgerQuery, ReadPlan
from echelons.checkpoints.run_config import get_saver, stores_each_step
from echelons.delegation.effects import CallQuestion, CallStart, CallState, EffectCall, JournalEntry
from echelons.errors import EchelonsError, LedgerDamaged, LedgerError
from echelons.guards.gate import Halt, get_gate
from echelons.identity.failures import FailureLog, LoggedFailure
from echelons.plans import Plan, arun_plan_steps, build_step, run_plan_steps

EntryJson: TypeAlias = dict[str, Any]
_Serialized: TypeAlias = tuple[str, str]
"""The type tag of a value, and its bytes in base64."""
MAX_KEPT_RESULTS = 1024
"""Results that a ledger in memory keeps, in case a foreign saver failed to store the writes."""
T = TypeVar("T")
LOG = logging.getLogger(__name__)
MAX_KEPT_FAILURES: Final = 100
"""The number of failures that a root's thread keeps."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """An entry as it is stored, with the call that it is for."""

    state: CallState
    at: str
    tool: str = ""
    agent_path: str = ""
    arguments: str | None = None
    request: str = ""
    call_id: str = ""
    result: _Serialized | None = None
    lost: str = ""
    answers: _Serialized | None = None
    ours: tuple[int, ...] = ()
    asked: int | None = None
    waits_for: tuple[str, ...] = ()
    heard: int = 0
    told: tuple[CallQuestion, ...] = ()
    cut: str = ""


EFFECT: Final = Records[StoredCall]("effect", StoredCall, raw=2)
"""An entry of the effect journal, by the position of its call."""


def entry_to_json(serde: SerializerProtocol, call: EffectCall, entry: JournalEntry) -> EntryJson:
    """Return an unfinished entry as JSON.

    Raises:
        NotStorable: An answer to the task cannot be stored.
    """
    value = _build_header(call, entry)
    if entry.answers or entry.ours or entry.told:
        value |= _build_answers(serde, entry)
    if entry.asked is not None:
        value["asked"] = entry.asked
    if entry.lost:
        value["lost"] = entry.lost
    if entry.cut:
        value["cut"] = entry.cut
    if entry.state is CallState.SUSPENDED:
        value |= {"waits_for": list(entry.waits_for), "heard": entry.heard}
    return value


def result_to_json(
    serde: SerializerProtocol, call: EffectCall, entry: JournalEntry, result: Any
) -> EntryJson:
    """Return a finished entry as JSON, with its result or the reason why it cannot be stored."""
    try:
        value = {**_build_header(call, entry), "result": _serialize(serde, _split_commands(result))}
        return {**value, **_build_answers(serde, entry)} if call.is_wrapped else value
    except Exception as error:  # noqa: BLE001  whatever the serializer raises, the call is done
        return lost_result_to_json(
            serde, call, entry, f"it could not be stored ({type(error).__name__}: {error})"
        )


def lost_result_to_json(
    serde: SerializerProtocol, call: EffectCall, entry: JournalEntry, why: str
) -> EntryJson:
    """Return a finished entry without its result as JSON, with the reason.

    It keeps the answers: if a human lets the call run again, it runs as it was approved.
    """
    kept = _build_answers(serde, entry)
    return {**_build_header(call, entry), **kept, "lost": why[:1000]}


def load_entry(
    serde: SerializerProtocol, name: str, record: VersionedValue[StoredCall] | Record[StoredCall]
) -> JournalEntry:
    """Return a stored entry with its values.

    Raises:
        LedgerDamaged: A value in it is none.
        CheckpointTampered: A value in it is damaged, or may not be loaded.
    """
    stored = record.value
    try:
        result = stored.result and _restore_commands(_deserialize(serde, stored.result))
        answers = tuple(_deserialize(serde, stored.answers)) if stored.answers else ()
    except (TypeError, ValueError, LookupError, RecursionError) as error:
        raise LedgerDamaged(name, str(error), EFFECT.name) from error
    return JournalEntry(
        state=stored.state,
        at=stored.at,
        version=record.version,
        result=result,
        lost=stored.lost,
        answers=answers,
        ours=stored.ours,
        asked=stored.asked,
        waits_for=stored.waits_for,
        heard=stored.heard,
        told=stored.told,
        cut=stored.cut,
    )


def _build_header(call: EffectCall, entry: JournalEntry) -> EntryJson:
    return {
        "state": str(entry.state),
        "at": entry.at,
        "tool": call.tool,
        "agent_path": call.path,
        "call_id": call.call_id,
        "arguments": call.digest,
        "request": call.request_id,
    }


def _build_answers(serde: SerializerProtocol, entry: JournalEntry) -> EntryJson:
    value: EntryJson = {}
    if entry.answers:
        value["answers"] = _serialize(serde, list(entry.answers))
    if entry.ours:
        value["ours"] = list(entry.ours)
    if entry.told:
        value["told"] = [asdict(question) for question in entry.told]
    return value


def _serialize(serde: SerializerProtocol, value: Any) -> list[str]:
    kind, data = serde.dumps_typed(value)
    return [kind, b64encode(data).decode("ascii")]


def _deserialize(serde: SerializerProtocol, packed: _Serialized) -> Any:
    kind, data = packed
    return serde.loads_typed((kind, b64decode(data, validate=True)))


def _split_commands(result: Any) -> list[Any]:
    """Return a result with its commands as lists: a checkpoint must not hold a `Command`."""
    if isinstance(result, list):
        return ["list", [_split_commands(part) for part in result]]
    if isinstance(result, Command):
        return ["command", result.graph, result.update, result.resume, result.goto]
    return ["value", result]


def _restore_commands(parts: Any) -> Any:
    kind, *rest = parts
    if kind == "list":
        return [_restore_commands(part) for part in rest[0]]
    if kind == "command":
        graph, update, resume, goto = rest
        return Command(graph=graph, update=update, resume=resume, goto=goto or ())
    return rest[0]


class CompletedCall(NamedTuple):
    """The journal entry of a completed call."""

    key: str
    version: int


class CompletedCalls:
    """The completed calls of this process, by task."""

    def __init__(self) -> None:
        # A middleware may have run a call several times, each with an entry of its own.
        self._done: dict[str, list[CompletedCall]] = {}

    def add(self, task_id: str, key: str, version: int) -> None:
        """Remember the completed call of a task."""
        entries = self._done.setdefault(task_id, [])
        entries[:] = [
            *(entry for entry in entries if entry.key != key),
            CompletedCall(key, version),
        ]

    def remove_entry(
        self, cursor: sqlite3.Cursor, task_id: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        """Remove the entries of a call, in the transaction that stores the writes of its task."""
        if task_id not in self._done or any(channel in (ERROR, INTERRUPT) for channel, _ in writes):
            return
        open_ = SqliteTransaction(cursor, utc_now, MAX_RECORD_SIZE)
        for done in self._done.pop(task_id):
            open_.delete(done.key, done.version)

    def drop_oldest(self, ledger: Ledger) -> None:
        """Remove the oldest entries, but for the latest `MAX_KEPT_RESULTS`."""
        while len(self._done) > MAX_KEPT_RESULTS:
            for done in self._done.pop(next(iter(self._done))):
                ledger.delete(done.key, done.version)


_FOREIGN_CALLS: WeakKeyDictionary[BaseCheckpointSaver[Any], CompletedCalls] = WeakKeyDictionary()


def removes_entries(saver: BaseCheckpointSaver[Any]) -> bool:
    """Return whether a saver removes journal entries itself."""
    return isinstance(getattr(saver, "unsettled", None), CompletedCalls)


def get_completed_calls(saver: BaseCheckpointSaver[Any]) -> CompletedCalls:
    """Return the completed calls of a saver, the same object every time."""
    calls = getattr(saver, "unsettled", None)
    if isinstance(calls, CompletedCalls):
        return calls
    return _FOREIGN_CALLS.setdefault(saver, CompletedCalls())


Config = Mapping[str, Any]


class LedgerJournal:
    """The journal of a compiled tree, in the ledger of the saver that a run uses."""

    def keeps(self, config: Config) -> bool:
        """Return whether a run has a saver that stores each step."""
        configurable = config.get("configurable") or {}
        return get_saver(configurable) is not None and stores_each_step(configurable)

    def find(self, call: EffectCall, config: Config) -> JournalEntry | None:
        """Return the entry of a call, `None` if it has not begun."""
        saver, name = _require_saver(config), build_call_key(call)
        record = get_ledger(saver).get_record(EFFECT, name)
        return load_entry(saver.serde, name, record) if record else None

    def begin(self, call: EffectCall, config: Config, answers: Sequence[Any] = ()) -> CallStart:
        """Record that a call is started, or return its existing entry.

        Nothing is recorded of a call whose agent was dismissed meanwhile.
        """
        saver, name = _require_saver(config), build_call_key(call)
        turn = get_turn(config["configurable"])
        fresh = JournalEntry(
            CallState.STARTED,
            utc_now().isoformat(),
            version=0,
            answers=tuple(answers),
            ours=tuple(range(len(answers))),
        )
        value = entry_to_json(saver.serde, call, fresh)
        ledger, gate = get_ledger(saver), get_gate(config)

        def work(open_: Transaction) -> VersionedValue[StoredCall] | int | Halt:
            if turn:
                # A run must begin no more effects once it has lost its lease, or once a write of
                # it has failed: nothing stored would show that it had come so far.
                turn.check_in(open_)
            if halt := gate.read_order(open_, config):
                return open_.get_record(EFFECT, name) or halt
            version = open_.compare_and_set(name, None, value)
            if version and ledger.has_earlier_calls and (left := _take_earlier(open_, call)):
                open_.compare_and_set(name, version, left)
                version = None
            # Without a version the call was begun before; in this transaction it cannot change.
            return open_.get_record(EFFECT, name) or 0 if version is None else version

        outcome = ledger.commit(work)
        if isinstance(outcome, Halt):
            return CallStart(fresh, fresh=True, halt=outcome)
        if isinstance(outcome, int):
            entry = JournalEntry(
                CallState.STARTED, fresh.at, outcome, answers=fresh.answers, ours=fresh.ours
            )
            return CallStart(entry, fresh=True)
        entry = load_entry(saver.serde, name, outcome)
        if entry.state is CallState.DONE:
            get_completed_calls(saver).add(call.task_id, name, entry.version)
        return CallStart(entry, fresh=False)

    def note(self, call: EffectCall, entry: JournalEntry, config: Config) -> JournalEntry:
        """Store the new state of a call, and return its entry with the new version."""
        saver, turn = _require_saver(config), get_turn(config["configurable"])
        timed = entry if entry.at else replace(entry, at=utc_now().isoformat())
        value = entry_to_json(saver.serde, call, timed)
        version = get_ledger(saver).compare_and_set(
            build_call_key(call), entry.version, value, fence=turn.fence if turn else None
        )
        if version is None:
            raise LedgerError(
                "call {call_id:short} of {tool} is carried out by another run of this thread; it "
                "was not carried out here. Run a thread in one place at a time, with a Session",
                code="call_contested",
                tool=call.tool,
                call_id=call.call_id,
            )
        return replace(timed, version=version)

    def end(self, call: EffectCall, entry: JournalEntry, result: Any, config: Config) -> None:
        """Store the result of a call, unless it was started again or its end is known."""
        saver, name = _require_saver(config), build_call_key(call)
        done = JournalEntry(
            CallState.DONE,
            entry.at,
            entry.version,
            answers=entry.answers,
            ours=entry.ours,
            told=entry.told,
        )
        value = result_to_json(saver.serde, call, done, result)

        def work(open_: Transaction) -> int | None:
            version = _find_started_version(open_.get_record(EFFECT, name), entry)
            if version is None:
                return None
            try:
                return open_.compare_and_set(name, version, value)
            except LedgerError as error:
                if error.code != "record_too_large":
                    raise
                why = f"it has {error.size} bytes, and the limit is {error.limit}"
                lost = lost_result_to_json(saver.serde, call, done, why)
                return open_.compare_and_set(name, version, lost)

        version = get_ledger(saver).commit(work)
        if version is not None:
            completed = get_completed_calls(saver)
            completed.add(call.task_id, name, version)
            if not removes_entries(saver):
                completed.drop_oldest(get_ledger(saver))

    async def arun(self, work: Callable[[], T], config: Config) -> T:
        """Call one of these methods in an event loop, and again if the ledger was busy."""
        return await get_ledger(_require_saver(config)).arun(work)


def build_call_key(call: EffectCall) -> str:
    """Return the ledger's key of a call; in a copy of the thread only the thread differs."""
    return EFFECT.key(call.thread_id, call.position_id)


def _take_earlier(open_: Transaction, call: EffectCall) -> Any:
    """Remove and return the entry that an earlier version has made for a call, if there is one.

    Such versions had no journal, or kept calls by `EffectCall.id`. The migration of the database
    keeps what it finds of either by the agent and the id of the call.
    """
    if call.entry > 1:
        return None
    name = EFFECT.key(call.thread_id, call.path, call.call_id)
    call_record, kept = open_.get_record(EFFECT, name), open_.get(name)
    if call_record is None or kept is None:
        return None
    digest = call_record.value.arguments
    if call_record.value.tool != call.tool or digest not in (None, call.digest):
        return None
    open_.delete(name, call_record.version)
    # Without a journal a call that waits for its first answer has not come past its question.
    is_suspended = digest is None and open_.get(build_key(call.thread_id, "asked", call.task_id))
    return None if is_suspended else kept.value


def _find_started_version(
    record: VersionedValue[StoredCall] | None, entry: JournalEntry
) -> int | None:
    """Return the version of a call that is still started, whether a human was asked or not."""
    if record is None or record.version == entry.version:
        return record and record.version
    is_same = record.value.state is CallState.STARTED and record.value.at == entry.at
    return record.version if is_same else None


def _require_saver(config: Config) -> BaseCheckpointSaver[Any]:
    saver = get_saver(config["configurable"])
    if saver is None:
        raise RuntimeError("a journal is asked for where nothing is kept; ask keeps() first")
    return saver


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFailure(LoggedFailure):
    """A failure as it is stored: without the thread's id if it is the root's own."""

    number: int  # how many failures the thread had, this one included


FAILURE: Final = Records[StoredFailure]("failure", StoredFailure)
"""One of the latest failures of a thread, by the rest of its number."""
FAILURE_COUNT: Final = Records[int]("failures", int)
"""The number of failures that a thread has had."""


class LedgerFailures(FailureLog):
    """The failure log of a compiled tree, on the saver that a run uses."""

    def store(self, failure: LoggedFailure, config: Mapping[str, Any]) -> None:
        """Store a failure with its thread, if the run has a saver."""
        run_plan_steps(_store(failure, config))

    async def astore(self, failure: LoggedFailure, config: Mapping[str, Any]) -> None:
        """Async version of `store`."""
        await arun_plan_steps(_store(failure, config))


def read_failures(thread_id: str) -> ReadPlan[tuple[LoggedFailure, ...]]:
    """Plan: the latest failures under a root's thread, oldest first."""
    records: list[Record[StoredFailure]] = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: FAILURE.find_all(open_, thread_id))
    )
    stored = sorted((record.value for record in records), key=attrgetter("number"))
    read_fields = attrgetter(*(field.name for field in fields(LoggedFailure)))
    failures = (LoggedFailure(*read_fields(failure)) for failure in stored)
    # Under the thread's own id, also where it is a copy.
    return tuple(
        failure if failure.thread_id else replace(failure, thread_id=thread_id)
        for failure in failures
    )


def _store(failure: LoggedFailure, config: Mapping[str, Any]) -> Plan[None]:
    configurable = config["configurable"]
    if (saver := get_saver(configurable)) is None:
        return
    turn, thread_id = get_turn(configurable), str(configurable.get("thread_id", ""))
    agent_thread = "" if failure.thread_id == thread_id else failure.thread_id

    def store(open_: Transaction) -> None:
        if turn:
            open_.require_lease(turn.fence)
        number = FAILURE_COUNT.change(open_, lambda count: (count or 0) + 1, thread_id)
        stored = StoredFailure(**{**asdict(failure), "thread_id": agent_thread}, number=number)
        FAILURE.put(open_, stored, thread_id, str(number % MAX_KEPT_FAILURES))

    ledger = get_ledger(saver)
    try:
        yield build_step(partial(ledger.commit, store), ledger.arun)
    except EchelonsError as error:
        # A full disk or a lost lease ends the run at its next step, with its own error.
        LOG.warning("failure %s could not be stored: %s", failure.id, error)
