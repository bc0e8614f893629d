"""The ledger: records of side effects and decisions, never forked and never rolled back.

Ordered streams, keys with compare-and-set, and leases with epochs; in memory, or in the
SQLite database of the checkpoints.
"""

from echelons.checkpoints.ledger.base_ledger import Ledger
from echelons.checkpoints.ledger.locks import Lease
from echelons.checkpoints.ledger.memory_ledger import MemoryLedger, build_key, get_ledger
from echelons.checkpoints.ledger.sqlite_ledger import SqliteLedger, require_lease
from echelons.checkpoints.ledger.transaction import (
    Fence,
    Json,
    LeaseHolder,
    RecordKind,
    StoredRecord,
    StreamEntry,
    Transaction,
    VersionedValue,
)

__all__ = [
    "Fence",
    "Json",
    "Lease",
    "LeaseHolder",
    "Ledger",
    "MemoryLedger",
    "RecordKind",
    "SqliteLedger",
    "StoredRecord",
    "StreamEntry",
    "Transaction",
    "VersionedValue",
    "build_key",
    "get_ledger",
    "require_lease",
]
