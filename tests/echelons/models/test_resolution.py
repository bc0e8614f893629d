"""What an agent may be given as its model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from echelons.errors import ModelError
from echelons.models import resolve_model
from echelons.models.resolution import check_model_name
from echelons.testing import ScriptedModel
from tests.error_codes import raises_code


def test_a_chat_model_is_taken_as_it_is() -> None:
    model = ScriptedModel(["a"])
    assert resolve_model(model) is model


@pytest.mark.parametrize("name", [None, "offline", "offline:planner"])
def test_no_name_and_the_offline_names_mean_the_planner(name: str | None) -> None:
    from echelons.offline.planner import OfflinePlanner

    assert isinstance(resolve_model(name), OfflinePlanner)


def test_no_name_means_the_planner_whatever_keys_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    from echelons.offline.planner import OfflinePlanner

    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert isinstance(resolve_model(None), OfflinePlanner)


@pytest.mark.parametrize(
    "name",
    ["", "gpt", "openai", "openai:", "openai:  ", "OPENAI:x", "offline:", "antropic:x", "xai: "],
)
def test_unknown_name_is_refused_with_the_valid_forms(name: str) -> None:
    with raises_code("unknown_model") as caught:
        resolve_model(name)
    assert caught.value.model == name
    assert caught.value.known[:3] == ("openai:NAME", "offline", "offline:planner")
    assert isinstance(caught.value, ModelError)


def test_an_unknown_provider_is_refused_with_those_that_langchain_knows() -> None:
    with raises_code("unknown_model") as caught:
        resolve_model("antropic:claude-sonnet-4-5")

    known = caught.value.known
    assert {"anthropic:NAME", "google_genai:NAME", "ollama:NAME", "xai:NAME"} < set(known)
    assert len(known) == len(set(known))
    assert "unknown model 'antropic:claude-sonnet-4-5'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("mistralai:mistral-large-latest", "langchain-mistralai"),
        ("mistral-large-latest", "langchain-mistralai"),
        ("google_genai:gemini-2.5-flash", "langchain-google-genai"),
        ("ollama:llama3.2:3b", "langchain-ollama"),
        ("azure_ai:gpt-5-mini", "langchain-azure-ai"),
    ],
)
def test_a_provider_whose_package_is_missing_is_refused_with_what_to_install(
    name: str, package: str
) -> None:
    with raises_code("model_package_missing") as caught:
        resolve_model(name)

    assert (caught.value.model, caught.value.package) == (name, package)
    assert isinstance(caught.value, ModelError)
    assert str(caught.value) == (
        f"model {name!r} needs the package {package!r}, which is not installed; "
        f"pip install {package}"
    )


@pytest.fixture
def without_langchain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("langchain", "langchain.chat_models"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("without_langchain")
def test_without_langchain_a_provider_is_refused_with_the_extra() -> None:
    with raises_code("model_package_missing") as caught:
        resolve_model("anthropic:claude-sonnet-4-5")

    assert str(caught.value) == (
        "model 'anthropic:claude-sonnet-4-5' needs the package 'langchain', which is not "
        "installed; pip install 'echelons[models]'"
    )


@pytest.mark.usefixtures("without_langchain")
def test_without_langchain_a_name_without_a_provider_is_unknown() -> None:
    with raises_code("unknown_model", match=r"PROVIDER:NAME \(with the extra echelons\[models\]\)"):
        resolve_model("claude-sonnet-4-5")


@pytest.mark.usefixtures("without_langchain")
def test_a_model_of_openai_needs_no_langchain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    assert type(resolve_model("openai:gpt-5-mini")).__name__ == "ChatOpenAI"


@pytest.mark.parametrize(
    "name",
    ["offline", "offline:planner", "openai:gpt-5", "anthropic:claude", "azure_openai:gpt", "gpt-5"],
)
def test_a_name_is_checked_without_key_and_package(name: str) -> None:
    check_model_name(name)


@pytest.mark.parametrize("name", ["", "openai:", "openai: ", "opnai:gpt-5"])
def test_a_name_of_no_model_is_refused_by_the_check(name: str) -> None:
    with raises_code("unknown_model") as caught:
        check_model_name(name)

    assert caught.value.model == name
    assert "openai:NAME" in caught.value.known


@pytest.mark.usefixtures("upstage")
def test_a_provider_whose_package_is_installed_has_its_own_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    model = resolve_model("upstage:solar-pro")

    assert (type(model).__name__, model.model_dump()["model_name"]) == ("ChatUpstage", "solar-pro")


def test_what_a_providers_package_refuses_is_said_in_one_line() -> None:
    with raises_code("model_unavailable") as caught:
        resolve_model("azure_openai:gpt-5-mini")

    assert caught.value.model == "azure_openai:gpt-5-mini"
    assert "`AZURE_OPENAI_API_KEY`" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_package_that_cannot_be_imported_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "langchain_nvidia_ai_endpoints.py").write_text("import no_such_client\n")
    monkeypatch.syspath_prepend(tmp_path)

    with raises_code("model_unavailable", match="No module named 'no_such_client'"):
        resolve_model("nvidia:nemotron")


@pytest.mark.parametrize("thing", [42, [], object, lambda messages: "hi"])
def test_what_is_no_chat_model_is_unknown(thing: Any) -> None:
    with raises_code("unknown_model", match="any LangChain chat model"):
        resolve_model(thing)
