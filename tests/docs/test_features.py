"""The feature on the page about features, put into a folder and the registry as the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from typer.testing import CliRunner

import echelons.features
from echelons import Session
from echelons.cli import app
from echelons.features import registry
from echelons.testing import Call, ScriptedModel

PAGE = Path(__file__).parents[2] / "docs" / "features.md"
FEATURES = Path(registry.__file__).parent
PACKAGE = "echelons.features.rate_limit"


@pytest.fixture
def feature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the feature, as if its folder were among those of the library."""
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    folder = tmp_path / "rate_limit"
    folder.mkdir()
    for name, text in zip(("feature", "commands"), code, strict=True):
        (folder / f"{name}.py").write_text(text)
    (folder / "__init__.py").touch()
    [entry] = re.findall(r"^    (Entry\(.*\)),$", PAGE.read_text(), re.MULTILINE)
    monkeypatch.setattr(echelons.features, "__path__", [*echelons.features.__path__, str(tmp_path)])
    entries = (*registry.FEATURES, eval(entry, {"Entry": registry.Entry}))
    monkeypatch.setattr(registry, "FEATURES", entries)
    monkeypatch.setattr(app, "FEATURES", entries)
    monkeypatch.setattr(app, "MODULES", app.find_modules())
    registry.load_feature("rate_limit")
    yield vars(sys.modules[f"{PACKAGE}.feature"])
    registry.load_feature.cache_clear()
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is nice"


def build_agent(feature: Any, replies: int) -> Any:
    calls = [Call("look", {"place": f"Rome {number}"}) for number in range(replies)]
    model = ScriptedModel({"guide": [*calls, "Go to Rome."]})
    return feature["RatedAgent"]("guide", model=model, tools=[look], calls_per_minute=2)


def test_each_feature_has_a_page() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|.*\[.*\]\(([\w.]+)(?:#([\w-]+))?\) \|$", PAGE.read_text(), re.M
    )
    folders = {path.parent.name for path in FEATURES.glob("*/feature.py")}

    assert {name for name, *_ in rows} == folders | {"middleware"}
    assert folders >= {entry.name for entry in registry.FEATURES}
    for _, page, section in rows:
        headings = re.findall(r"^#+ (.+)$", (PAGE.parent / page).read_text(), re.M)
        assert not section or section in [text.lower().replace(" ", "-") for text in headings]


def test_example_is_short() -> None:
    code = re.findall(r"^```\w+\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)

    assert sum(len(text.splitlines()) for text in code) <= 120


def test_agent_ends_at_its_limit_and_goes_on_in_the_next_minute(
    feature: Any, tmp_path: Path
) -> None:
    now = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    feature["utc_now"] = lambda: now

    with Session(build_agent(feature, 1), tmp_path / "threads.db") as session:
        first = session.send("Where to?").result()
        second = session.send("Sure?").result()
        now += timedelta(minutes=1)
        third = session.send("And now?").result()

    assert first.text == third.text == "Go to Rome."
    assert second.response
    assert second.response.reason == (
        "limit: 2 calls a minute are the most for guide; try again in a minute"
    )


async def test_agent_ends_at_its_limit_in_an_event_loop(feature: Any, tmp_path: Path) -> None:
    async with Session(build_agent(feature, 2), tmp_path / "threads.db") as session:
        result = await (await session.asend("Where to?")).result()

    assert result.response
    assert result.response.status == "partial"


def test_command_shows_the_calls(feature: Any, tmp_path: Path) -> None:
    feature["utc_now"] = lambda: datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    with Session(build_agent(feature, 1), tmp_path / "threads.db") as session:
        session.send("Where to?").result()

    result = CliRunner().invoke(app.app, ["rates", "--db", str(tmp_path / "threads.db")])

    assert result.stdout == "guide  2026-01-01T12:30  2\n"
