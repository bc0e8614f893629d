"""What users import, databases hold and models read stays where code moves."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

from tests.what_stays import RECORD, list_all_literals

STAYS: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", STAYS["names"])
def test_names_can_be_imported(module: str) -> None:
    found = import_module(module)

    assert [name for name in STAYS["names"][module] if not hasattr(found, name)] == []


def test_keys_and_texts_are_in_the_source() -> None:
    literals = list_all_literals()

    assert [text for text in (*STAYS["keys"], *STAYS["texts"]) if text not in literals] == []
