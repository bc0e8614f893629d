"""`DelegationMiddleware`: the base class with the hooks for which LangChain has no name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import AIMessageChunk
from langgraph.runtime import Runtime

from echelons.delegation.request import DelegationRequest, DelegationResponse

F = TypeVar("F", bound=Callable[..., Any])


def _declare(hook: F) -> F:
    """Mark a hook that does nothing: only a class that overrides it defines it."""
    vars(hook)["is_empty_hook"] = True
    return hook


class DelegationMiddleware(AgentMiddleware[Any, Any]):
    """LangChain's `AgentMiddleware` with hooks around the requests to subordinates.

    `handler` takes the request down, and returns the response; it may be called several times, or
    not at all. Each further call is another request on the same thread of the subordinate, with
    the task and the context that it is given. The method is run from its start in each step, with
    the responses that are stored; `handler.once(function)` returns what a function returns, and
    stores it, so that it is not called again: for a model that is asked, or an effect. Its value
    must be JSON. `handler.ask(agent, task)` asks another subordinate of the same agent, on a thread
    of its own, and returns its response.

    Attributes:
        asks: Names of the subordinates that it asks; they are checked when its agent is made.
    """

    asks: tuple[str, ...] = ()

    @_declare
    def wrap_delegation(self, request: DelegationRequest, handler: Any) -> DelegationResponse:
        """Handle a request to a subordinate, and return the response for the superior."""
        response: DelegationResponse = handler(request)
        return response

    @_declare
    async def awrap_delegation(
        self, request: DelegationRequest, handler: Any
    ) -> DelegationResponse:
        """Async version of `wrap_delegation`; `handler` and what it offers are awaited."""
        response: DelegationResponse = await handler(request)
        return response

    @_declare
    def on_stream_chunk(self, chunk: AIMessageChunk, runtime: Runtime[Any]) -> None:
        """Take note of a chunk of the agent's reply."""
