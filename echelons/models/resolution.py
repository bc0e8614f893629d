"""Resolves the model setting of an agent to the chat model that it calls.

`graphs.agent_models` uses it when a tree is compiled. Importing this loads no provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelons.errors import UnknownModel

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

OPENAI_PREFIX = "openai:"
OFFLINE_NAMES = ("offline", "offline:planner")
KNOWN_FORMS = ("openai:NAME", *OFFLINE_NAMES)


def resolve_model(model: BaseChatModel | str | None) -> BaseChatModel:
    """Return the chat model for a model setting.

    Nothing falls back silently: only None and its own names mean the offline planner.

    Args:
        model: A chat model, which is returned as it is; `"openai:NAME"`;
            `"offline"` or `"offline:planner"`; or None for the offline planner.

    Returns:
        A chat model; a new one at each call for a name or None.

    Raises:
        UnknownModel: It is neither a chat model nor a known name.
        ModelKeyMissing: The named model needs a key, and the environment has none.
        InvalidModelAddress: The environment gives an invalid address.

    Examples:
        >>> resolve_model("gpt")
        Traceback (most recent call last):
        ...
        echelons.errors.UnknownModel: unknown model 'gpt'; known forms are openai:NAME, \
offline, offline:planner, or pass any LangChain chat model object
    """
    if model is None or (isinstance(model, str) and model in OFFLINE_NAMES):
        from echelons.models.planner import OfflinePlanner

        return OfflinePlanner()
    if isinstance(model, str):
        name = model.removeprefix(OPENAI_PREFIX).strip()
        if not model.startswith(OPENAI_PREFIX) or not name:
            raise UnknownModel(model, KNOWN_FORMS)
        from echelons.models.openai_chat import create_openai_chat

        return create_openai_chat(name)
    from langchain_core.language_models import BaseChatModel

    if isinstance(model, BaseChatModel):
        return model
    raise UnknownModel(repr(model), KNOWN_FORMS)
