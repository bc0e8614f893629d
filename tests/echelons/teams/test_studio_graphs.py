"""What ``langgraph.json`` names is there, and fit for a server."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.graphs.compiled_tree import AgentGraph
from tests.error_codes import raises_code

ROOT = Path(__file__).parents[3]
CONFIG: dict[str, Any] = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))


def exported(path: str) -> Any:
    """Return what a path such as ``./folder/module.py:name`` leads to, as the server loads it."""
    file, name = path.split(":")
    return runpy.run_path(str(ROOT / file))[name]


@pytest.mark.parametrize("team", ["travel", "research"])
def test_a_team_is_a_graph_without_a_checkpointer_and_with_a_description(team: str) -> None:
    graph = exported(CONFIG["graphs"][team]["path"])

    assert isinstance(graph, AgentGraph)
    assert graph.checkpointer is None
    assert graph.agent.subordinates
    assert CONFIG["graphs"][team]["description"]


async def test_the_checkpointer_is_a_factory_that_is_entered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ECHELONS_DB", str(tmp_path / "threads.sqlite"))

    async with exported(CONFIG["checkpointer"]["path"])() as saver:
        assert isinstance(saver, BaseCheckpointSaver)


def test_the_research_team_reads_the_folder_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "terns.md").write_text("# Terns\n\nThey fly far.\n", encoding="utf-8")
    monkeypatch.setenv("ECHELONS_DOCS", str(tmp_path))

    graph = exported(CONFIG["graphs"]["research"]["path"])

    assert [member.name for member in graph.agent.subordinates] == ["terns_md"]


def test_a_folder_that_is_not_there_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ECHELONS_DOCS", str(tmp_path / "nothing"))

    with raises_code("folder_missing", match="nothing"):
        exported(CONFIG["graphs"]["research"]["path"])
