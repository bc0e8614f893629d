"""What was derived of a tree's agents outlives the process that asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echelons import SqliteCheckpointer
from echelons.capabilities import Capability, Derivation
from echelons.checkpoints.coordination.capability_cache import CapabilityCache
from echelons.checkpoints.ledger import Ledger, MemoryLedger

EAT = Derivation("a1", {"dining": Capability(0.8, ["a table"]), "food": Capability(0.5)})
FLY = Derivation("b2", {"flights": Capability(0.7)})


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    if request.param == "memory":
        return MemoryLedger()
    return SqliteCheckpointer(tmp_path / "t.sqlite").ledger


def test_what_was_derived_is_read_by_the_next_process(tmp_path: Path) -> None:
    place = tmp_path / "t.sqlite"
    CapabilityCache(SqliteCheckpointer(place).ledger, "travel").write({"eat": EAT, "fly": FLY})

    later = CapabilityCache(SqliteCheckpointer(place).ledger, "travel")
    assert later.read(["eat", "fly", "walk"]) == {"eat": EAT, "fly": FLY}
    assert later.read([]) == {}


async def test_a_later_derivation_takes_the_place_of_the_earlier(ledger: Ledger) -> None:
    kept = CapabilityCache(ledger, "travel")
    kept.write({"eat": EAT})
    await kept.arun(lambda: kept.write({"eat": FLY}))
    kept.write({})

    assert await kept.arun(lambda: kept.read(["eat"])) == {"eat": FLY}
    assert ledger.list_keys("derived/") == ["derived/travel/eat"]
    assert CapabilityCache(ledger, "research").read(["eat"]) == {}


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "eat",
        [],
        {},
        {"fingerprint": "a1"},
        {"fingerprint": "a1", "capabilities": ["dining"]},
        {"fingerprint": "a1", "capabilities": {"dining": 0.8}},
        {"fingerprint": "a1", "capabilities": {"dining": {"confidence": 7, "examples": []}}},
        {"fingerprint": "a1", "capabilities": {"": {"confidence": 0.7, "examples": []}}},
        {"fingerprint": "a1", "capabilities": {"dining": {"confidence": 0.7, "examples": [3]}}},
    ],
)
def test_what_is_no_derivation_is_derived_anew(ledger: Ledger, stored: Any) -> None:
    ledger.compare_and_set("derived/travel/eat", None, stored)
    kept = CapabilityCache(ledger, "travel")

    assert kept.read(["eat"]) == {}
    kept.write({"eat": EAT})
    assert kept.read(["eat"]) == {"eat": EAT}
