"""The team on the page about profiles, written and run as a reader would."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echelons.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, str]]:
    """Yield the commands on the page, each with what it prints."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for each in block.split("$ echelons ")[1:]:
            line, _, printed = each.partition("\n")
            yield line, printed


def test_the_team_on_the_page_is_checked_drawn_and_run_with_what_the_page_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ECHELONS_DB", "threads.sqlite")
    files = re.findall(r"`([\w./]+/[\w.]+)`(?::| is)\n\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    for name, text in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")

    ran = [(line, CliRunner().invoke(app, shlex.split(line)), text) for line, text in commands()]

    assert [line.split()[0] for line, _, _ in ran] == ["check", "draw", "run", "check"]
    for line, done, printed in ran:
        pattern = ".*".join(map(re.escape, printed.split("…")))
        assert re.fullmatch(pattern, done.stdout), (line, done.stdout, done.stderr)
        assert done.exit_code == (6 if "broken" in line else 0)


def test_the_settings_on_the_page_are_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = PAGE.split("## Settings")[1].split("```toml\n")[1].partition("```")[0]
    for name, text in {
        "prompt.md": "You plan.",
        "settings.toml": settings,
        "default/prompt.md": "You work.",
        "default/tools/search.py": 'def search(task: str) -> str:\n    """Search."""\n',
    }.items():
        Path("team", name).parent.mkdir(parents=True, exist_ok=True)
        Path("team", name).write_text(text, encoding="utf-8")
    for name in ("flights", "hotels"):
        Path("team", name).mkdir()

    done = CliRunner().invoke(app, ["check", "team"])

    assert (done.exit_code, done.stdout) == (0, "team: 3 agents, 1 tools, no faults\n")
