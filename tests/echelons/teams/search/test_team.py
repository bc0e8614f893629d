"""The team is one agent around one tool, and answers from a folder offline."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelons import Session
from echelons.cli.app import app
from echelons.delegation.effects import EffectKind, get_effect_kind
from echelons.teams.search import (
    SearchService,
    WebProvider,
    WikipediaProvider,
    build_search_team,
    team,
)
from tests.echelons.teams.search import replies
from tests.error_codes import raises_code
from tests.loopback_server import LoopbackServer


def test_the_agent_is_a_wrapper_of_at_most_forty_lines() -> None:
    assert len(inspect.getsource(build_search_team).splitlines()) <= 40
    agent = build_search_team(SearchService([]))
    assert [each.name for each in agent.tools] == ["search"]
    assert get_effect_kind(agent.tools[0]) is EffectKind.READS_ONLY


def test_the_team_answers_offline_from_a_folder_with_file_and_line(notes: Path) -> None:
    with Session(team(notes), ":memory:") as session:
        result = session.send("When do spring tides come?").result()

    assert "Spring tides come at new moon and full moon." in result.text
    assert "sea/tides.md:5" in result.text


def test_the_team_says_honestly_that_nothing_is_found(notes: Path) -> None:
    with Session(team(notes), ":memory:") as session:
        result = session.send("Who is the king of Spain?").result()

    assert "nothing is found" in result.text
    assert "folder: it finds nothing" in result.text


def test_the_team_answers_from_a_server(server: LoopbackServer) -> None:
    server.replies["/api"] = replies.wikipedia("Spring tide")
    service = SearchService([WikipediaProvider(f"{server.url}/api")])

    with Session(build_search_team(service), ":memory:") as session:
        result = session.send("When do spring tides come?").result()
    assert "1. Spring tide" in result.text
    assert "/wiki/Spring_tide (wikipedia)" in result.text


def test_without_a_folder_the_public_providers_are_asked() -> None:
    assert [each.name for each in team().tools] == ["search"]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with raises_code("folder_missing"):
        team(tmp_path / "missing")


def test_the_command_line_runs_it_on_a_folder(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(
        app, ["run", "search", "When do spring tides come?", "--docs", str(notes), "--db", "s.db"]
    )

    assert ran.exit_code == 0, ran.output
    assert "sea/tides.md:5" in ran.output


def test_the_command_line_takes_it_without_a_folder() -> None:
    drawn = CliRunner().invoke(app, ["draw", "search"])

    assert drawn.exit_code == 0, drawn.output
    assert "search: Searches for a query" in drawn.output


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ddgs", None)

    with raises_code("missing_extra", match=r"pip install 'echelons\[search\]'"):
        WebProvider().find_hits("tides", 0.0)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with raises_code("missing_extra", match=r"'httpx'.*echelons\[search\]"):
        WikipediaProvider().find_hits("tides", 0.0)
