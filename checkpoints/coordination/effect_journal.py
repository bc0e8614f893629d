"""`LedgerJournal`: the effect journal, kept in the ledger of a run's saver.

Each call has one value under the root's thread. `compile_tree` makes the journal of a tree;
`nodes` write to it through the protocol `Journal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.clock import utc_now
from echelons.checkpoints.coordination.journal_cleanup import get_completed_calls, removes_entries
from echelons.checkpoints.coordination.journal_entries import (
    EFFECT,
    StoredCall,
    entry_to_json,
    load_entry,
    lost_result_to_json,
    result_to_json,
)
from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.inherited_config import get_saver, stores_each_step
from echelons.checkpoints.ledger import Transaction, VersionedValue, build_key, get_ledger
from echelons.effects.journal import CallStart, CallState, EffectCall, JournalEntry
from echelons.errors import LedgerError
from echelons.guards.gate import Halt, get_gate

T = TypeVar("T")
Config = Mapping[str, Any]


class LedgerJournal:
    """The journal of a compiled tree, in the ledger of the saver that a run uses."""

    def keeps(self, config: Config) -> bool:
        """Return whether a run has a saver that stores each step."""
        given = config.get("configurable") or {}
        return get_saver(given) is not None and stores_each_step(given)

    def find(self, call: EffectCall, config: Config) -> JournalEntry | None:
        """Return the entry of a call, `None` if it has not begun."""
        saver, name = _require_saver(config), build_call_key(call)
        found = get_ledger(saver).get_record(EFFECT, name)
        return load_entry(saver.serde, name, found) if found else None

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

        found = ledger.commit(work)
        if isinstance(found, Halt):
            return CallStart(fresh, fresh=True, halt=found)
        if isinstance(found, int):
            entry = JournalEntry(
                CallState.STARTED, fresh.at, found, answers=fresh.answers, ours=fresh.ours
            )
            return CallStart(entry, fresh=True)
        entry = load_entry(saver.serde, name, found)
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
    found, kept = open_.get_record(EFFECT, name), open_.get(name)
    if found is None or kept is None:
        return None
    digest = found.value.arguments
    if found.value.tool != call.tool or digest not in (None, call.digest):
        return None
    open_.delete(name, found.version)
    # Without a journal a call that waits for its first answer has not come past its question.
    is_suspended = digest is None and open_.get(build_key(call.thread_id, "asked", call.task_id))
    return None if is_suspended else kept.value


def _find_started_version(
    found: VersionedValue[StoredCall] | None, entry: JournalEntry
) -> int | None:
    """Return the version of a call that is still started, whether a human was asked or not."""
    if found is None or found.version == entry.version:
        return found and found.version
    asked = found.value.state is CallState.STARTED and found.value.at == entry.at
    return found.version if asked else None


def _require_saver(config: Config) -> BaseCheckpointSaver[Any]:
    saver = get_saver(config["configurable"])
    if saver is None:
        raise RuntimeError("a journal is asked for where nothing is kept; ask keeps() first")
    return saver
