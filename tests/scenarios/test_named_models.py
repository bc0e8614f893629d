"""A tree whose models are named for a provider, against a server, at three levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from echelons import Agent, Session
from echelons.testing import Call, OpenAIServer, delegate
from tests.error_codes import raises_code

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.conftest import World


def search(what: str) -> str:
    """Search for something."""
    return f"found {what}"


def build_tree(model: str, leaf_model: str) -> Agent:
    leaf = Agent("leaf", model=leaf_model, tools=[search])
    return Agent("head", model=model, subordinates=[Agent("between", subordinates=[leaf])])


@pytest.mark.usefixtures("upstage")
def test_a_provider_is_asked_at_every_level(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [
        delegate("between", "search"),
        delegate("leaf", "search"),
        Call("search", {"what": "tea"}),
        *("leaf done", "between done", "head done"),
    ]
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with OpenAIServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with Session(build_tree("upstage:solar-pro", "upstage:solar-mini"), ":memory:") as session:
            result = world.send(session, "search")

    assert result.text == "head done"
    pro, mini = "solar-pro", "solar-mini"
    assert [each.model for each in server.requests] == [pro, pro, mini, mini, pro, pro]


@pytest.mark.parametrize("models", [("ollama:llama3", "offline"), ("offline", "ollama:llama3")])
def test_a_missing_package_is_refused_before_there_is_a_database(
    tmp_path: Path, models: tuple[str, str]
) -> None:
    database = tmp_path / "trips.sqlite"

    with raises_code(
        "model_package_missing", match=r"'ollama:llama3'.*pip install langchain-ollama"
    ):
        Session(build_tree(*models), database)

    assert not database.exists()
