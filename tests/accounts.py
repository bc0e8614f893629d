"""Reads the grants and charges of a thread, and checks that their sums are right."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import Any

from echelons import ThreadStore
from echelons.checkpoints.coordination.grants import CHARGE, GRANT, ChargeRecord, Grant
from echelons.checkpoints.ledger import Transaction, build_key, get_ledger
from echelons.guards.prices import add_money


def read_grants(saver: Any, thread_id: str) -> dict[str, Grant]:
    """Return the grants of a thread by turn and id."""

    def read(open_: Transaction) -> dict[str, Grant]:
        prefix = build_key(thread_id, GRANT.name, "")
        found = {key: open_.get_record(GRANT, key) for key in open_.list_keys(prefix)}
        return {
            key.removeprefix(prefix): Grant(key.removeprefix(prefix).split("/", 1)[1], each.value)
            for key, each in found.items()
            if each
        }

    return get_ledger(saver).query(read)


def read_charges(saver: Any, thread_id: str) -> dict[str, ChargeRecord]:
    """Return the charges of a thread by key."""

    def read(open_: Transaction) -> dict[str, ChargeRecord]:
        prefix = build_key(thread_id, CHARGE.name, "")
        found = {key: open_.get_record(CHARGE, key) for key in open_.list_keys(prefix)}
        return {key.removeprefix(prefix): each.value for key, each in found.items() if each}

    return get_ledger(saver).query(read)


def check_accounts(saver: Any, thread_id: str) -> dict[str, Grant]:
    """Check each grant against its charges and the grants below it; return them by path.

    What a grant has spent and reserved is what was charged to it, and what the grants that were
    taken from it have spent if they are closed, or were granted if they are not.
    """
    grants = read_grants(saver, thread_id)
    own = _sum_uses(grants, read_charges(saver, thread_id))
    for key, grant in grants.items():
        turn = key.split("/", 1)[0]
        for unit in set(grant.granted) - {"seconds"}:
            used = grant.get_used(unit)
            assert used == own[turn, grant.id, unit], (key, unit)
            if not grant.record.closed:
                free: Any = grant.get_free(unit)
                over: Any = grant.get_overdraft(unit)
                assert used + free == grant.granted[unit] + over, (key, unit)
        if grant.record.closed:
            assert not any(grant.reserved.values()), key
    check_usage(saver, thread_id)
    return {grant.record.path: grant for grant in grants.values()}


def check_usage(saver: Any, thread_id: str) -> None:
    """Check that the sums of usage have each charge and each grant once, to the last cent."""
    report = ThreadStore(saver).usage(thread_id)
    charges = [each for each in read_charges(saver, thread_id).values() if each.kind == "model"]
    charged = [each for each in report.calls if each.kind == "model" and each.state != "reported"]
    tokens = (each.input_tokens + each.output_tokens + each.charged_tokens for each in charged)
    assert sum(tokens) == sum(each.tokens for each in charges)
    money = [each.money for each in charged if each.money is not None]
    assert add_money(*money) == add_money(*(Decimal(each.money or 0) for each in charges))
    grants = read_grants(saver, thread_id)
    for each in report.grants:
        if each.unit == "seconds":
            continue  # no exact sums
        grant = grants[f"{each.turn_id}/{each.grant_id}"]
        free = 0 if each.closed else grant.get_free(each.unit)
        left = free, grant.get_overdraft(each.unit)
        assert (each.free, each.overdraft) == tuple(Decimal(str(amount)) for amount in left)
    assert len(report.grants) == sum(len(each.granted) for each in grants.values())


def _sum_uses(
    grants: dict[str, Grant], charges: dict[str, ChargeRecord]
) -> dict[tuple[str, str, str], Any]:
    """Return what was taken from each grant, by turn, grant and unit."""
    own: dict[Any, Any] = defaultdict(int)
    for key, charge in charges.items():
        turn = key.split("/", 1)[0]
        for unit, amount in charge.amounts.items():
            own[turn, charge.grants[unit], unit] += amount
    for key, grant in grants.items():
        turn = key.split("/", 1)[0]
        for unit, above in grant.record.above.items():
            if unit != "seconds":
                closed = grant.record.closed
                own[turn, above, unit] += (grant.spent if closed else grant.granted).get(unit, 0)
    return own
