"""Resolves the model setting of an agent to a client, and what is known of that client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from echelons.errors import ModelError
from echelons.text.error_lines import describe_failure

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


OPENAI_PREFIX = "openai:"
OFFLINE_NAMES = ("offline", "offline:planner")
OWN_FORMS = ("openai:NAME", *OFFLINE_NAMES)
KNOWN_FORMS = (*OWN_FORMS, "PROVIDER:NAME (with the extra echelons[models])")

# LangChain says in words alone which providers it knows and which package one needs.
_SUPPORTED = re.compile(r"Supported (?:model )?providers(?: are)?: (.+)")
_REQUIRED = re.compile(r"pip install [`'\"]?(\w[\w\[\],-]*)")


def resolve_model(model: BaseChatModel | str | None) -> BaseChatModel:
    """Return the chat model for a model setting.

    Nothing falls back silently: only None and its own names mean the offline planner.

    Args:
        model: A chat model, which is returned as it is; `"openai:NAME"`; any other name that
            LangChain's `init_chat_model` takes, such as `"anthropic:NAME"`, which needs the
            extra `models` and the provider's package; `"offline"` or `"offline:planner"`; or
            None for the offline planner.

    Returns:
        A chat model; a new one at each call for a name or None.

    Raises:
        ModelError: It is neither a chat model nor a known name; a package that the name needs is
            not installed; the named model needs a key, and the environment has none; the
            environment gives an invalid address; the provider's package cannot create the model.

    Examples:
        >>> resolve_model("openai:")
        Traceback (most recent call last):
        ...
        echelons.errors.ModelError: unknown model 'openai:'; known forms are openai:NAME, \
offline, offline:planner, PROVIDER:NAME (with the extra echelons[models]), or pass any LangChain \
chat model object
    """
    if model is None or (isinstance(model, str) and model in OFFLINE_NAMES):
        from echelons.offline.planner import OfflinePlanner

        return OfflinePlanner()
    if isinstance(model, str):
        if not model.rpartition(":")[2].strip():
            raise _unknown_model(model, KNOWN_FORMS)
        if not model.startswith(OPENAI_PREFIX):
            return _create_provider_chat(model)
        from echelons.models.openai_chat import create_openai_chat

        return create_openai_chat(model.removeprefix(OPENAI_PREFIX).strip())
    from langchain_core.language_models import BaseChatModel

    if isinstance(model, BaseChatModel):
        return model
    raise _unknown_model(repr(model), KNOWN_FORMS)


def check_model_name(model: str) -> None:
    """Check a model's name as far as possible without making the model.

    Raises:
        ModelError: It names no model, or a provider that LangChain does not know.
    """
    provider, colon, _ = model.partition(":")
    if not model.rpartition(":")[2].strip():
        raise _unknown_model(model, KNOWN_FORMS)
    if not colon or model in OFFLINE_NAMES or model.startswith(OPENAI_PREFIX):
        return
    forms: Sequence[str] = ()
    try:
        # LangChain lists its providers in the error for an unknown one.
        _create_provider_chat("none:none")
    except ModelError as error:
        if error.code == "model_package_missing":
            return
        if error.code != "unknown_model":
            raise
        forms = error.known
    if forms and f"{provider}:NAME" not in forms:
        try:
            _create_provider_chat(model)
        except ModelError as error:
            # Otherwise it has guessed the provider.
            if error.code == "unknown_model":
                raise


def _create_provider_chat(model: str) -> BaseChatModel:
    """Return the chat model that LangChain's `init_chat_model` creates for a name."""
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        if ":" not in model:
            raise _unknown_model(model, KNOWN_FORMS) from error
        raise _package_missing(model, "langchain", "'echelons[models]'") from error
    try:
        return init_chat_model(model)
    except ImportError as error:
        required = _REQUIRED.search(str(error))
        if required and find_spec(required[1].replace("-", "_")) is None:
            raise _package_missing(model, required[1], required[1]) from error
        # A package that is installed and cannot be imported: LangChain says that it is missing.
        raise _unavailable(model, error.__cause__ or error) from error
    except Exception as error:
        if supported := _SUPPORTED.search(str(error)):
            forms = (f"{part}:NAME" for part in supported[1].split(", "))
            raise _unknown_model(model, tuple(dict.fromkeys((*OWN_FORMS, *forms)))) from error
        raise _unavailable(model, error) from error


def is_offline_planner(model: object) -> bool:
    """Return whether a model is the offline planner, which writes no text of its own."""
    from echelons.offline.planner import OfflinePlanner

    return isinstance(model, OfflinePlanner)


def _package_missing(model: str, package: str, requirement: str) -> ModelError:
    return ModelError(
        "model {model!r} needs the package {package!r}, which is not installed; "
        "pip install {requirement}",
        code="model_package_missing",
        model=model,
        package=package,
        requirement=requirement,
    )


def _unavailable(model: str, error: BaseException) -> ModelError:
    return ModelError(
        "model {model!r} cannot be created: {reason}; set what its provider needs, or pass a "
        "LangChain chat model object",
        code="model_unavailable",
        model=model,
        reason=describe_failure(error, "model_unavailable").rstrip("."),
    )


def _unknown_model(model: str, known: Sequence[str]) -> ModelError:
    return ModelError(
        "unknown model {model!r}; known forms are {known}, or pass any LangChain chat model object",
        code="unknown_model",
        model=model,
        known=tuple(known),
    )


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
