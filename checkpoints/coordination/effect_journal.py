"""`SavedJournal`: the effect journal, kept in the ledger of a run's saver.

Each call has one value under the root's thread. `compile_tree` makes the journal of a tree;
`nodes` write to it through the protocol `Journal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.clock import now
from echelons.checkpoints.coordination.journal_cleanup import settles, unsettled_of
from echelons.checkpoints.coordination.journal_entries import (
    Stored,
    load,
    lost,
    stored,
    stored_result,
)
from echelons.checkpoints.coordination.turns import turn_of
from echelons.checkpoints.inherited_config import keeps_each_step, saver_of
from echelons.checkpoints.ledger import Transaction, Value, key, ledger_of
from echelons.effects.journal import Begun, Call, Entry, State
from echelons.errors import CallContested, RecordTooLarge

T = TypeVar("T")
Config = Mapping[str, Any]


class SavedJournal:
    """The journal of a compiled tree, in the ledger of the saver that a run uses."""

    def keeps(self, config: Config) -> bool:
        """Return whether a run has a saver that stores each step."""
        given = config.get("configurable") or {}
        return saver_of(given) is not None and keeps_each_step(given)

    def begin(self, call: Call, config: Config) -> Begun:
        """Record that a call is started, or return its existing entry."""
        saver, entry = _saver(config), _started()
        found = ledger_of(saver).commit(_beginning(call, entry, config))
        return _begun(saver, call, entry, found)

    def note(self, call: Call, entry: Entry, config: Config) -> Entry:
        """Store the new state of a call, and return its entry with the new version."""
        saver, timed = _saver(config), _timed(entry)
        value = stored(saver.serde, call, timed)
        return _noted(call, timed, ledger_of(saver).commit(_noting(call, timed, value, config)))

    def end(self, call: Call, entry: Entry, result: Any, config: Config) -> None:
        """Store the result of a call, unless it was started again or its end is known."""
        saver = _saver(config)
        _ended(saver, call, ledger_of(saver).commit(_ending(saver, call, entry, result)))

    async def arun(self, work: Callable[[], T], config: Config) -> T:
        """Call one of these methods in an event loop, and again if the ledger was busy."""
        return await ledger_of(_saver(config)).arun(work)


def key_of(call: Call) -> str:
    """Return the ledger's key of a call; in a copy of the thread only the thread differs."""
    return key(call.thread_id, "effect", call.place)


def _beginning(call: Call, entry: Entry, config: Config) -> Callable[[Transaction], Value | int]:
    name, turn = key_of(call), turn_of(config["configurable"])
    value = stored(_saver(config).serde, call, entry)

    def work(open_: Transaction) -> Value | int:
        if turn:
            # A run must begin no more effects once it has lost its lease, or once a write of it
            # has failed: nothing stored would show that it had come so far.
            turn.require(open_)
        version = open_.compare_and_set(name, None, value)
        # Without a version the call was begun before; within this transaction it cannot change.
        return open_.get(name) or 0 if version is None else version

    return work


def _begun(saver: BaseCheckpointSaver[Any], call: Call, fresh: Entry, found: Value | int) -> Begun:
    if isinstance(found, int):
        return Begun(replace(fresh, version=found), fresh=True)
    entry = load(saver.serde, key_of(call), found)
    if entry.state is State.DONE:
        unsettled_of(saver).add(call.task_id, key_of(call), entry.version)
    return Begun(entry, fresh=False)


def _noting(
    call: Call, entry: Entry, value: Stored, config: Config
) -> Callable[[Transaction], int | None]:
    name, turn = key_of(call), turn_of(config["configurable"])

    def work(open_: Transaction) -> int | None:
        if turn:
            open_.require(turn.fence)
        return open_.compare_and_set(name, entry.version, value)

    return work


def _noted(call: Call, entry: Entry, version: int | None) -> Entry:
    if version is None:
        raise CallContested(call.tool, call.call_id)
    return replace(entry, version=version)


def _ending(
    saver: BaseCheckpointSaver[Any], call: Call, entry: Entry, result: Any
) -> Callable[[Transaction], int | None]:
    name, done = key_of(call), replace(entry, state=State.DONE)
    value = stored_result(saver.serde, call, done, result)

    def work(open_: Transaction) -> int | None:
        version = _version_of(open_.get(name), entry)
        if version is None:
            return None
        try:
            return open_.compare_and_set(name, version, value)
        except RecordTooLarge as error:
            why = f"it has {error.size} bytes, and the limit is {error.limit}"
            return open_.compare_and_set(name, version, lost(call, done, why))

    return work


def _version_of(found: Value | None, entry: Entry) -> int | None:
    """Return the version of a call that is still started, whether a human was asked or not."""
    if found is None or found.version == entry.version:
        return found and found.version
    head = {"state": str(State.STARTED), "at": entry.at}
    asked = isinstance(found.value, dict) and head.items() <= found.value.items()
    return found.version if asked else None


def _ended(saver: BaseCheckpointSaver[Any], call: Call, version: int | None) -> None:
    if version is None:
        return
    done = unsettled_of(saver)
    done.add(call.task_id, key_of(call), version)
    if not settles(saver):
        done.drop_oldest(ledger_of(saver))


def _started() -> Entry:
    return Entry(State.STARTED, now().isoformat(), version=0)


def _timed(entry: Entry) -> Entry:
    return entry if entry.at else replace(entry, at=now().isoformat())


def _saver(config: Config) -> BaseCheckpointSaver[Any]:
    saver = saver_of(config["configurable"])
    if saver is None:
        raise RuntimeError("a journal is asked for where nothing is kept; ask keeps() first")
    return saver
