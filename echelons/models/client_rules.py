"""`ClientRules`: what is known of the client of a chat model, and so of its wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

WireFormat = Literal["openai", "responses", "anthropic", "unknown"]


@dataclass(frozen=True, slots=True)
class ClientRules:
    """The content that a client accepts in a request."""

    wire_format: WireFormat = "unknown"
    provider: str = ""

    @property
    def takes_data_in_results(self) -> bool:
        """Whether the result of a tool may hold pictures and files."""
        # A model's `profile` speaks of the model, not of what its wire format can carry.
        return self.wire_format in ("responses", "anthropic")

    @property
    def needs_user_turns(self) -> bool:
        """Whether a conversation begins and ends with a message of the user."""
        return self.wire_format in ("anthropic", "unknown")


STRICTEST: Final = ClientRules()
"""The rules of an unknown client."""

_ANTHROPIC = ("ChatAnthropic", "ChatAnthropicVertex", "ChatAnthropicBedrock")


def describe_client(model: Any, arguments: Mapping[str, Any] | None = None) -> ClientRules:
    """Return what is known of a model's client."""
    kinds = [kind.__name__ for kind in type(model).__mro__]
    provider = _find_provider(model)
    if any(kind in _ANTHROPIC for kind in kinds):
        return ClientRules("anthropic", provider)
    if "BaseChatOpenAI" in kinds:
        is_responses = _uses_responses(model, dict(arguments or {}))
        return ClientRules("responses" if is_responses else "openai", provider)
    return ClientRules(provider=provider)


def _uses_responses(model: Any, arguments: dict[str, Any]) -> bool:
    """Return whether a client of OpenAI's sends its requests to the Responses API."""
    try:
        return bool(model._use_responses_api(arguments))
    except Exception:  # noqa: BLE001  a private method of another version
        return getattr(model, "use_responses_api", None) is True


def _find_provider(model: Any) -> str:
    try:
        return str(model._get_ls_params().get("ls_provider") or "")
    except Exception:  # noqa: BLE001  a model need not be a chat model of LangChain's
        return ""
