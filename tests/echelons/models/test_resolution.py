"""What an agent may be given as its model."""

from __future__ import annotations

from typing import Any

import pytest

from echelons.errors import ModelError, UnknownModel
from echelons.models import resolve_model
from echelons.testing import ScriptedModel


def test_a_chat_model_is_taken_as_it_is() -> None:
    model = ScriptedModel(["a"])
    assert resolve_model(model) is model


@pytest.mark.parametrize("name", [None, "offline", "offline:planner"])
def test_no_name_and_the_offline_names_mean_the_planner(name: str | None) -> None:
    from echelons.models.planner import OfflinePlanner

    assert isinstance(resolve_model(name), OfflinePlanner)


def test_no_name_means_the_planner_whatever_keys_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    from echelons.models.planner import OfflinePlanner

    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert isinstance(resolve_model(None), OfflinePlanner)


@pytest.mark.parametrize(
    "name",
    ["", "gpt-5-mini", "openai", "openai:", "openai:  ", "OPENAI:x", "offline:", "anthropic:x"],
)
def test_any_other_name_is_unknown_and_the_known_forms_are_told(name: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve_model(name)
    assert caught.value.model == name
    assert caught.value.known == ("openai:NAME", "offline", "offline:planner")
    assert isinstance(caught.value, ModelError)


@pytest.mark.parametrize("thing", [42, [], object, lambda messages: "hi"])
def test_what_is_no_chat_model_is_unknown(thing: Any) -> None:
    with pytest.raises(UnknownModel, match="any LangChain chat model"):
        resolve_model(thing)
