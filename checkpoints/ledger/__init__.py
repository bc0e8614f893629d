"""The ledger: records of side effects and decisions, never forked and never rolled back.

Ordered streams, keys with compare-and-set, and leases with epochs; in memory, or in the
SQLite database of the checkpoints.
"""

from echelons.checkpoints.ledger.base_ledger import Ledger
from echelons.checkpoints.ledger.lease import Lease
from echelons.checkpoints.ledger.memory_ledger import MemoryLedger
from echelons.checkpoints.ledger.records import Json
from echelons.checkpoints.ledger.saver_ledger import key, ledger_of
from echelons.checkpoints.ledger.sqlite_ledger import SqliteLedger, require_in
from echelons.checkpoints.ledger.transaction import Entry, Fence, Holder, Transaction, Value

__all__ = [
    "Entry",
    "Fence",
    "Holder",
    "Json",
    "Lease",
    "Ledger",
    "MemoryLedger",
    "SqliteLedger",
    "Transaction",
    "Value",
    "key",
    "ledger_of",
    "require_in",
]
