"""LangGraph's own suite for checkpoint savers, all of it, on our saver."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from echelons.checkpoints.checkpointer import SqliteCheckpointer

Open = Callable[[], SqliteCheckpointer]


def in_memory(folder: Path) -> Open:
    return lambda: SqliteCheckpointer(":memory:")


def in_a_file(folder: Path) -> Open:
    return lambda: SqliteCheckpointer(folder / "conformance.sqlite")


def in_a_file_from_other_threads(folder: Path) -> Open:
    return lambda: SqliteCheckpointer(folder / "conformance.sqlite", offload=True)


@pytest.mark.parametrize("kind", [in_memory, in_a_file, in_a_file_from_other_threads])
async def test_the_saver_has_every_capability_that_langgraph_tests(
    kind: Callable[[Path], Open], tmp_path: Path
) -> None:
    opened = kind(tmp_path)

    @checkpointer_test(name=kind.__name__)
    async def savers() -> AsyncGenerator[BaseCheckpointSaver[str], None]:
        with opened() as saver:
            yield saver

    results = (await validate(savers)).results

    assert {name: result.failures for name, result in results.items() if result.failures} == {}
    assert {name for name, result in results.items() if result.passed} == {*map(str, CAPABILITIES)}


CAPABILITIES = [capability.value for capability in Capability]
