"""`LedgerFailures`: the failures of a thread, kept in the ledger of a run's saver.

A thread keeps its latest `MAX_KEPT_FAILURES`, each under a key of its own, of which the oldest is
written over. They are stored at once, so they survive the process, and a fork of the thread; they
are copied and deleted with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final

from echelons.checkpoints.coordination.records import Record, Records
from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.inherited_config import get_saver
from echelons.checkpoints.ledger import Transaction, get_ledger
from echelons.checkpoints.queries import LedgerQuery, ReadPlan
from echelons.errors import EchelonsError
from echelons.identity.failures import FailureLog, LoggedFailure
from echelons.plans import Plan, arun_plan_steps, build_step, run_plan_steps

LOG = logging.getLogger(__name__)
MAX_KEPT_FAILURES: Final = 100
"""The number of failures that a root's thread keeps."""


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
