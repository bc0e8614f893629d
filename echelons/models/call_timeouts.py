"""Passes what is left of an agent's time to its model, as the timeout of one call.

Only to models whose client takes one. An event loop cancels a late call, a thread cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import get_llm_cache
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from echelons.guards.deadlines import time_left

FORWARDING_PACKAGES = frozenset({"langchain_openai", "langchain_anthropic"})
"""Packages whose models pass the arguments of a call on to their SDK, which takes a `timeout`."""


class TokenDeadline(BaseCallbackHandler):
    """Ends the streamed reply of an agent that has no time left; a timeout does not do that.

    A client's timeout is the longest silence, and a reply that is being written is not silent.
    """

    raise_error = True

    def __init__(self, config: RunnableConfig) -> None:
        self._config = config

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        """Check the time.

        Raises:
            TimeoutError: The deadline has passed.
        """
        if time_left(self._config) == 0:
            raise TimeoutError("the reply is not complete, and the agent has no time left")


def takes_timeout(model: Any) -> bool:
    """Return whether a call of a model takes a `timeout` in seconds."""
    packages = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    generate = getattr(model, "_generate", None)
    return bool(packages & FORWARDING_PACKAGES) or (
        generate is not None and "timeout" in signature(generate).parameters
    )


def limit_call(model: Any, config: RunnableConfig) -> tuple[RunnableConfig, dict[str, Any]]:
    """Return the config and the further arguments of a call of a model that takes a timeout.

    The timeout is what the agent with `config` has left, or that of the model if it is shorter.
    An agent without a deadline changes nothing.
    """
    left = time_left(config)
    if left is None:
        return config, {}
    timed = merge_configs(config, {"callbacks": [TokenDeadline(config)]})
    # A cache finds a reply by the arguments of its call, and this one is never the same.
    if getattr(model, "cache", None) or get_llm_cache():
        return timed, {}
    preset = getattr(model, "request_timeout", getattr(model, "default_request_timeout", None))
    return timed, {"timeout": _shorten(preset, max(left, 0.001))}


def _shorten(timeout: Any, left: float) -> Any:
    """Return a client's timeout, of which no part is longer than the seconds left."""
    if isinstance(timeout, (int, float)):
        return min(timeout, left)
    if isinstance(timeout, tuple):
        return tuple(_shorten(item, left) for item in timeout)
    if hasattr(timeout, "as_dict"):  # the `Timeout` of an HTTP library
        parts: Mapping[str, Any] = timeout.as_dict()
        return type(timeout)(**{name: _shorten(entry, left) for name, entry in parts.items()})
    return left
