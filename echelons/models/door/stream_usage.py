"""`StreamUsage`: asks a client for the usage of a streamed reply, by an argument of the call.

Clients of OpenAI's Chat Completions ask for it by themselves only at OpenAI's own address, since
some servers refuse what they do not know. A server that refuses is not asked again.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, Self

from langchain_core.runnables import RunnableConfig

from echelons.models.client_rules import ClientRules

_REFUSING: Final[dict[int, weakref.ref[Any]]] = {}
"""The clients whose servers have refused to report usage in a stream, by their ids."""
_OPTION = "stream_options"
_BAD_REQUESTS = (400, 422)


WITH_USAGE: Final[Mapping[str, Any]] = {"stream_usage": True}
"""The argument of a call that asks for it."""


class StreamUsage:
    """A model whose streamed replies report usage only when asked to."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @classmethod
    def find(cls, model: Any, rules: ClientRules, arguments: Mapping[str, Any]) -> Self | None:
        """Return what asks a model for it; `None` if there is nothing to ask for."""
        settings = {**(getattr(model, "model_kwargs", None) or {}), **arguments}
        is_open = (
            rules.wire_format == "openai"
            and hasattr(model, "_should_stream_usage")
            and hasattr(model, "_should_stream")
            # A user who has set it has decided.
            and getattr(model, "stream_usage", True) is None
            and settings.keys().isdisjoint({_OPTION, "stream_usage"})
        )
        return cls(model) if is_open else None

    def is_wanted(
        self, config: RunnableConfig, arguments: Mapping[str, Any], *, is_async: bool
    ) -> bool:
        """Return whether a call has to ask: its reply is streamed, and would not report it."""
        if id(self._model) in _REFUSING:
            return False
        around = config.get("callbacks")
        handlers = [
            *(around if isinstance(around, list) else getattr(around, "handlers", ())),
            *(getattr(self._model, "callbacks", None) or ()),
        ]
        manager = SimpleNamespace(handlers=handlers)
        options = {"async_api": is_async, "run_manager": manager, **arguments}
        return bool(self._model._should_stream(**options))

    def note_refusal(self, error: Exception) -> bool:
        """Return whether an error refuses to report usage, and remember it for the client."""
        status = getattr(error, "status_code", None)
        if status not in _BAD_REQUESTS or _OPTION not in str(error):
            return False
        key = id(self._model)
        _REFUSING[key] = weakref.ref(self._model, lambda _: _REFUSING.pop(key, None))
        return True
