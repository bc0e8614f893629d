"""The kinds of all records in a ledger, by the names that their keys have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from echelons.checkpoints.coordination.answer_mark import OPEN_EPOCH
from echelons.checkpoints.coordination.capability_cache import DERIVED
from echelons.checkpoints.coordination.circuit_breakers import CIRCUIT, INTENSITY
from echelons.checkpoints.coordination.control_orders import ORDERS
from echelons.checkpoints.coordination.effect_journal import EFFECT
from echelons.checkpoints.coordination.failure_ledger import FAILURE, FAILURE_COUNT
from echelons.checkpoints.coordination.race_ledger import RACE
from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.coordination.turns import TURN
from echelons.checkpoints.ledger import RecordKind
from echelons.checkpoints.ledger.records import ANY_RECORD
from echelons.checkpoints.threads.answer_outbox import ANSWER
from echelons.checkpoints.tree_control.agent_aliases import ALIAS_NAME, ALIAS_POOL
from echelons.checkpoints.tree_control.repairs import REPAIR
from echelons.checkpoints.tree_control.usage_meter import METER
from echelons.features.registry import list_features

_CORE_KINDS: Final[tuple[Records[Any], ...]] = (
    *(TURN, ORDERS, METER, EFFECT, FAILURE, FAILURE_COUNT, RACE, ANSWER, OPEN_EPOCH),
    REPAIR,
)
SHARED_KINDS: Final[dict[str, RecordKind[Any]]] = {
    kind.name: kind for kind in (CIRCUIT, INTENSITY, DERIVED, ALIAS_NAME, ALIAS_POOL)
}
"""The kinds of the records that threads share."""


@cache
def get_thread_kinds() -> Mapping[str, Records[Any]]:
    """Return the kinds of the records of a thread, also those of features, by name."""
    of_features = (kind for feature in list_features() for kind in feature.records)
    return {kind.name: kind for kind in (*_CORE_KINDS, *of_features)}


def list_branch_kinds() -> list[Records[Any]]:
    """Return the kinds whose records belong to branches, which move when checkpoints are pruned."""
    return [kind for kind in get_thread_kinds().values() if kind.after]


def find_record_kind(key: str) -> RecordKind[Any]:
    """Return the kind of the records under a key, `ANY_RECORD` if it is not known.

    Examples:
        >>> find_record_kind("thread/trip/turn/1").name, find_record_kind("mail").name
        ('turn', 'record')
    """
    first, *parts = key.split("/")
    if first == "thread" and len(parts) > 1:
        return get_thread_kinds().get(parts[1], ANY_RECORD)
    return SHARED_KINDS.get(first, ANY_RECORD)
