"""The aliases of agents: names for people, each of one agent in the whole database.

A name is claimed under a key of its own, which stays when its thread is deleted, so that no other
agent is ever called so. A second key, which belongs to the thread, has the name of the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import count
from typing import Final
from urllib.parse import quote

from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import RecordKind, Transaction
from echelons.errors import LedgerDamaged
from echelons.tree.name_themes import NameTheme


@dataclass(frozen=True, slots=True)
class StoredAlias:
    """The alias of an agent as it is stored; with where the agent is, for the view `agents`."""

    alias: str
    root_thread: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class AliasOwner:
    """Whose alias a name is, as it is stored."""

    root_thread: str
    agent_id: str


ALIAS: Final = Records[StoredAlias]("alias", StoredAlias, is_copied=False)
"""The alias of an agent, by its id."""
ALIAS_NAME: Final[RecordKind[AliasOwner]] = RecordKind("alias-name", AliasOwner)
"""The agent that has a name, for good."""
ALIAS_POOL: Final[RecordKind[int]] = RecordKind("alias-pool", int)
"""The number that the names of a theme get now, as those with all smaller ones are taken."""


def assign_alias(
    open_: Transaction,
    root_thread: str,
    agent_id: str,
    theme: NameTheme,
    seed: str,
    path: str = "",
) -> str:
    """Return the alias of an agent, which gets one if it has none yet.

    The first choice follows from the seed and the agent; if it is taken, the names after it are
    tried, and when all are taken, the same with a number: `Ada-2`.

    Raises:
        LedgerDamaged: The alias of this agent is damaged, or is another's. It gets no other.
    """
    owner = AliasOwner(root_thread, agent_id)
    if stored := ALIAS.get(open_, root_thread, agent_id):
        if _find_owner(open_, stored.alias) != owner:
            why = f"{stored.alias!r} is no name of this agent"
            raise LedgerDamaged(ALIAS.key(root_thread, agent_id), why, ALIAS.name)
        return stored.alias
    pool_key = f"{ALIAS_POOL.name}//{theme.digest}"
    size = len(theme.names)
    first = int.from_bytes(sha256(f"{seed}/{agent_id}".encode()).digest()[:8])
    for number in count(_read_number(open_, pool_key)):
        for step in range(size):
            name = theme.names[(first + step) % size]
            alias = name if number == 1 else f"{name}-{number}"
            claimed = open_.compare_and_set(_build_name_key(alias), None, asdict(owner))
            # It may have been the agent's before.
            if claimed is not None or _find_owner(open_, alias) == owner:
                ALIAS.add(open_, StoredAlias(alias, root_thread, path), root_thread, agent_id)
                return alias
        # Only a hint, by which the next agent need not try them all again.
        open_.discard(pool_key)
        open_.compare_and_set(pool_key, None, number + 1)
    raise AssertionError  # numbers do not end


def list_aliases(open_: Transaction, root_thread: str) -> dict[str, str]:
    """Return the aliases of a root's agents by their ids, without those that are damaged."""
    return {agent_id: stored.alias for agent_id, stored in _iterate_aliases(open_, root_thread)}


def list_aliases_by_path(open_: Transaction, root_thread: str) -> dict[str, str]:
    """Return the aliases of a root's agents by their paths, without those that are damaged."""
    return {stored.path: stored.alias for _, stored in _iterate_aliases(open_, root_thread)}


def _iterate_aliases(open_: Transaction, root_thread: str) -> Iterator[tuple[str, StoredAlias]]:
    """Yield the aliases of a root's agents, each with the agent's id."""
    for record in ALIAS.list_whole(open_, root_thread):
        agent_id = record.last_part
        if _find_owner(open_, record.value.alias) == AliasOwner(root_thread, agent_id):
            yield agent_id, record.value


def _find_owner(open_: Transaction, alias: str) -> AliasOwner | None:
    """Return whose alias a name is; `None` for none, or if that cannot be read."""
    try:
        claim = open_.get_record(ALIAS_NAME, _build_name_key(alias))
    except LedgerDamaged:
        return None
    return claim.value if claim else None


def _read_number(open_: Transaction, pool_key: str) -> int:
    try:
        number = open_.get_record(ALIAS_POOL, pool_key)
    except LedgerDamaged:
        return 1
    return max(number.value, 1) if number else 1


def _build_name_key(alias: str) -> str:
    return f"{ALIAS_NAME.name}//{quote(alias.casefold(), safe='')}"
