"""A damaged record of the ledger is named with its kind and key, and costs no other thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from echelons import EchelonsError, ThreadStore
from echelons.checkpoints.coordination.candidates import list_circuits
from echelons.checkpoints.ledger import build_key
from echelons.checkpoints.maintenance.thread_admin import (
    SHARED_KINDS,
    find_record_kind,
    get_thread_kinds,
)
from echelons.errors import LedgerDamaged

if TYPE_CHECKING:
    from tests.crash.conftest import Besieged

RECORD_KINDS = {**get_thread_kinds(), **SHARED_KINDS}
FAILURE = dict.fromkeys(
    ("id", "at", "path", "thread_id", "request_id", "tool", "error", "traceback"), "x"
)
VALID: dict[str, Any] = {
    "turn": {"task": "x", "announced": True, "text": "x", "status": "finished", "reason": ""},
    "orders": {"stopped": ["head/a"], "paused": ["head"]},
    "meter": {"steps": 1, "calls": 1, "tokens": 1, "seconds": 0.5},
    "effect": {
        "state": "started",
        "at": "x",
        "call_id": "1",
        "ours": [0],
        "heard": 1,
        "told": [{"id": "x", "text": "x", "answer": "x"}],
    },
    "failure": {**FAILURE, "number": 1},
    "failures": 1,
    "race": [1, 2],
    "answer": {"delivered": True},
    "open": 1,
    "mailbox": {"sent": 2, "read": [[1, 2]]},
    "mail": {"sender": "user", "text": "x", "at": "x", "after": "", "kind": "message"},
    "mail-read": [[1, 2]],
    "mail-sent": {"turn": "x", "counts": {"head/a": 1}},
    "repair": {"messages": ["x"], "by": "x", "at": "x"},
    "steered": 1,
    "approval": [{"decision": {"type": "approve"}, "thread": "t", "after": "c"}],
    "later": {
        "question": {"text": "x"},
        "path": "head",
        "agent_thread_id": "x",
        "at": "x",
        "after": "",
        "answered": False,
    },
    "workspace": {
        "file": "plan.md",
        "text": "x",
        "bases": ["x"],
        "at": "x",
        "state": "proposed",
        "calls": ["x"],
        "root": "/x",
    },
    "note": {"name": "x", "text": "x", "author": "head", "at": "x", "calls": ["x"]},
    "alias": {"alias": "Ada"},
    "monitor": {"cursor": 7, "calls": 2, "tokens": 90, "said": 1, "notes": ["report: x"]},
    "alias-name": {"root_thread": "x", "agent_id": "x"},
    "alias-pool": 2,
    "grant": {
        "path": "head",
        "granted": {"tokens": 5, "money": "0.5", "seconds": 1.5},
        "above": {"tokens": "root"},
        "spent": {"tokens": 1},
        "reserved": {"tokens": 1},
        "closed": True,
        "warned": ["tokens"],
    },
    "charge": {
        "kind": "model",
        "path": "head",
        "agent_thread_id": "x",
        "state": "charged",
        "grants": {"tokens": "root"},
        "tokens": 5,
    },
    "dismissal": {"by": "Ann", "at": "x", "graceful": True},
    "circuit": {"failures": 1, "opened_at": 0.5, "probe": 0, "probed_at": None, "seconds": 60.0},
    "intensity": [1.5],
    "derived": {"fingerprint": "x", "capabilities": {"a": {"confidence": 1, "examples": ["x"]}}},
}
JUNK = ("null", "-1", "1.5", "true", '"x"', "[]", "{}", "[null]", '{"a":1}', "NaN", "1e999")
NO_JSON: tuple[Any, ...] = ("", "{", b"\xff", "[" * 3000, "9" * 5000, None, 5)


def every_form(valid: Any) -> Iterator[Any]:
    """Yield texts in place of a record: no JSON, and JSON that is wrong in one place."""
    yield from (*NO_JSON, *JUNK)
    if isinstance(valid, dict):
        for field in valid:
            without = {key: each for key, each in valid.items() if key != field}
            yield json.dumps(without)
            marked = json.dumps({**without, field: "here"})
            yield from (marked.replace('"here"', each) for each in JUNK)


@pytest.mark.parametrize("name", RECORD_KINDS)
def test_a_record_of_another_shape_is_named_with_its_kind_and_key(name: str) -> None:
    kind, damaged = RECORD_KINDS[name], 0
    assert kind.decode("here", json.dumps(VALID[name])) is not None

    for form in every_form(VALID[name]):
        try:
            kind.decode("here", form)
        except LedgerDamaged as error:
            damaged += 1
            assert (error.where, error.kind) == ("here", name)
            assert f"the {name} that the ledger holds under 'here'" in str(error)
            assert len(str(error)) < 600

    assert damaged >= 15


@pytest.mark.parametrize("name", [name for name, each in VALID.items() if isinstance(each, dict)])
def test_a_field_of_a_newer_version_is_passed_over(name: str) -> None:
    newer = {**VALID[name], "newer": {"a": [1]}}

    assert RECORD_KINDS[name].decode("k", json.dumps(newer)) == RECORD_KINDS[name].decode(
        "k", json.dumps(VALID[name])
    )


def put(besieged: Besieged, key: str, text: str, column: str = "value") -> None:
    with besieged.saver.cursor() as cursor:
        cursor.execute(
            "INSERT OR IGNORE INTO ledger_values (key, version, at, value) VALUES (?, 1, '', '{}')",
            (key,),
        )
        cursor.execute(f"UPDATE ledger_values SET {column} = ? WHERE key = ?", (text, key))


def ask_again(besieged: Besieged) -> str:
    """Have the bad thread ask, so that each kind of its records is read; return the question."""
    session = besieged.session("bad")
    session.send("again", turn_id="2").result()
    [question] = session.inbox()
    return question.id


def ways(besieged: Besieged, question: str) -> list[Callable[[], Any]]:
    """Return each way to use the bad thread."""
    store, session = ThreadStore(besieged.saver), besieged.session("bad")
    return [
        lambda: store.trace(besieged.bad),
        lambda: store.failures(besieged.bad),
        session.inbox,
        lambda: session.answer(question, "no").result(),
        lambda: session.resume().result(),
        lambda: session.send("again", turn_id="2").result(),
        lambda: session.send("once more").result(),
    ]


THREAD_KEYS = {
    "turn": "turn/2",
    "orders": "orders/2",
    "meter": "meter/2",
    "failure": "failure/1",
    "failures": "failures",
    "open": "open",
    "effect": "effect/x",
}


@pytest.mark.parametrize("damage", ['{"newer": 1}', '[{"a": 1}]', '{"task": 5, "state": "x"}'])
@pytest.mark.parametrize("name", [*THREAD_KEYS, "answer"])
def test_a_damaged_record_stops_its_own_thread_by_name_and_no_other(
    name: str, damage: str, besieged: Besieged
) -> None:
    question = ask_again(besieged)
    key = build_key(besieged.bad, THREAD_KEYS.get(name, f"answer/{question}"))
    assert find_record_kind(key).name == name
    put(besieged, key, damage)

    for use in ways(besieged, question):
        try:
            use()
        except EchelonsError as error:
            str(error).encode()

    assert any(key in fault.where for fault in besieged.saver.check().faults) or key_is_whole(
        besieged, key
    )
    assert {root.id for root in ThreadStore(besieged.saver).roots()} == {
        besieged.bad,
        besieged.good,
    }
    assert besieged.turn("good") == besieged.good
    besieged.saver.delete_thread(besieged.bad)
    assert besieged.turn("bad") == besieged.bad


def key_is_whole(besieged: Besieged, key: str) -> bool:
    """Return whether a record has the shape of its kind, as some forms have, or was replaced."""
    found = besieged.saver.ledger.get_record(find_record_kind(key), key)
    return found is not None


@pytest.mark.parametrize("name", ["orders", "meter", "open", "answer"])
async def test_a_thread_with_a_damaged_record_is_listed_as_damaged(
    name: str, besieged: Besieged
) -> None:
    question = ask_again(besieged)
    put(besieged, build_key(besieged.bad, THREAD_KEYS.get(name, f"answer/{question}")), '["a"]')
    store = ThreadStore(besieged.saver)

    [listed] = store.inbox()

    assert listed.root.id == besieged.bad
    assert f"the {name} that the ledger holds" in listed.root.damage
    assert "restore a backup of the database, or delete the thread" in listed.root.damage
    assert await store.ainbox() == [listed]
    roots = store.roots()
    assert [root.id for root in roots if root.damage] == [besieged.bad] * (name != "answer")
    assert await store.aroots() == roots


@pytest.mark.parametrize("damage", ['{"failures": "x"}', "[]", '{"seconds": 0}', "{"])
def test_a_damaged_circuit_counts_as_closed_and_is_logged_once(
    damage: str, besieged: Besieged, caplog: pytest.LogCaptureFixture
) -> None:
    put(besieged, "circuit//head/camp", damage)
    put(besieged, "circuit/x", damage)

    assert besieged.turn("good") == besieged.good
    assert besieged.turn("bad") == besieged.bad
    [shown] = list_circuits(besieged.saver.ledger)

    assert (shown.path, str(shown.state)) == ("head/camp", "closed")
    logged = [each for each in caplog.messages if "counts as closed" in each]
    assert len(logged) <= 1


@pytest.mark.parametrize("column", ["epoch", "pid"])
@pytest.mark.parametrize("damage", ["x", b"\xff", 1.5, -1, 2**63 - 1])
def test_a_thread_whose_lease_is_damaged_can_be_taken_over(
    column: str, damage: Any, besieged: Besieged
) -> None:
    name, ledger = build_key(besieged.bad), besieged.saver.ledger
    with besieged.saver.cursor() as cursor:
        cursor.execute(f"UPDATE ledger_leases SET {column} = ? WHERE name = ?", (damage, name))

    with pytest.raises(LedgerDamaged, match="the lease that the ledger holds"):
        besieged.session("bad").send("again").result()
    [fault] = besieged.saver.check().faults
    assert fault.where == f"lease {name!r} in the ledger"
    assert besieged.turn("good") == besieged.good

    ledger.take_over(name).release()
    assert besieged.turn("bad") == besieged.bad


@pytest.mark.parametrize("damage", ["x", b"\xff", 1.5, -1, 2**63 - 1, None])
def test_a_damaged_floor_of_the_versions_is_made_again(damage: Any, besieged: Besieged) -> None:
    with besieged.saver.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_floor")
        if damage is not None:
            cursor.execute("INSERT INTO ledger_floor VALUES (?)", (damage,))

    assert besieged.turn("good") == besieged.good
    assert besieged.saver.check().is_sound


@pytest.mark.parametrize("damage", ["x", b"\xff", 2**63 - 1, 2**53 - 1])
def test_the_version_of_a_damaged_record_does_not_outlive_it(
    damage: Any, besieged: Besieged
) -> None:
    put(besieged, build_key(besieged.bad, "open"), damage, "version")

    besieged.saver.delete_thread(besieged.bad)

    assert besieged.turn("good") == besieged.good
    assert besieged.turn("bad") == besieged.bad


def test_a_key_that_is_no_unicode_hides_no_other(besieged: Besieged) -> None:
    for key in ("thread/x", f"{build_key(besieged.bad)}/effect/1", "circuit//a/"):
        with besieged.saver.cursor() as cursor:
            cursor.execute(
                "INSERT INTO ledger_values (key, version, at, value)"
                " VALUES (? || CAST(x'ff' AS TEXT), 1, '', '{}')",
                (key,),
            )

    assert besieged.turn("good") == besieged.good
    assert besieged.turn("bad") == besieged.bad
    assert list_circuits(besieged.saver.ledger) != []


@pytest.mark.parametrize("key", [b"", b"circuit//a", 5])
def test_a_key_that_is_no_text_hides_no_other(key: Any, besieged: Besieged) -> None:
    with besieged.saver.cursor() as cursor:
        cursor.execute("UPDATE ledger_values SET key = CAST(? AS BLOB) WHERE id = 1", (key,))

    assert besieged.turn("good") == besieged.good
    assert besieged.turn("bad") == besieged.bad
    assert [fault.why for fault in besieged.saver.check().faults] == ["its key is no text"]
