"""What Echelons relies on in `langchain` alone, which only the extra `models` brings."""

from __future__ import annotations

import pytest
from langchain.chat_models import init_chat_model


def test_an_unknown_provider_is_refused_in_words_that_list_the_known_ones() -> None:
    """`models.resolution` reads the list out of the message."""
    with pytest.raises(ValueError, match=r"Supported providers: anthropic, .*, openai, .*, xai\n"):
        init_chat_model("antropic:claude-sonnet-4-5")


@pytest.mark.parametrize("provider", ["cohere", "ollama"])
def test_a_missing_package_is_named_in_the_words_of_pip(provider: str) -> None:
    """`models.resolution` reads the package out of the message."""
    with pytest.raises(ImportError, match=f"`pip install langchain-{provider}`"):
        init_chat_model(f"{provider}:any")
