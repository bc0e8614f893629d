"""`ModelInput`: what an agent's model reads in a step, its answer, and who chooses the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig

from echelons.errors import ModelError, model_cannot_call
from echelons.guards.gate import Halt, Pause
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import Past
from echelons.models import resolve_model
from echelons.models.call_timeouts import takes_timeout
from echelons.models.door.ask import CallRefused, ask
from echelons.models.door.bound_model import BoundModel
from echelons.nodes.model_call.state_function import StateFunction
from echelons.plans import Plan, arun_plan_steps, run_plan_steps

KEPT_NAMES = 32
"""Most models that are kept of those that a function chooses by name."""


class ModelInput(NamedTuple):
    """The input of a model call, and its sources.

    Attributes:
        system: Its instructions.
        messages: The conversation, as far as the model reads it.
        past: The segments before the present one.
        state: The level's state.
        more_tools: The tools that it has beside those bound to it at first.
    """

    system: SystemMessage | None
    messages: Sequence[BaseMessage]
    past: Past
    state: Mapping[str, Any]
    more_tools: Sequence[Any] = ()

    def build_prompt(self) -> list[BaseMessage]:
        """Return the messages for the model, with the instructions first."""
        return [*([self.system] if self.system else []), *self.messages]

    def ask(self, model: BoundModel, config: RunnableConfig) -> Plan[Any]:
        """Return the model's reply."""
        return ask(model, self.build_prompt(), config)

    def answer(self, model: BoundModel, config: RunnableConfig) -> ModelAnswer:
        """Return what has come of a model's call, which the agent's budget may refuse."""
        try:
            return ModelAnswer(run_plan_steps(self.ask(model, config)))
        except CallRefused as refused:
            return ModelAnswer(refused=refused.verdict)

    async def aanswer(self, model: BoundModel, config: RunnableConfig) -> ModelAnswer:
        """Async version of `answer`."""
        try:
            return ModelAnswer(await arun_plan_steps(self.ask(model, config)))
        except CallRefused as refused:
            return ModelAnswer(refused=refused.verdict)


@dataclass(slots=True)
class ModelAnswer:
    """The outcome of a model call, with the changes of hooks.

    Attributes:
        reply: The reply.
        halt: The halt that the call has led to, if a hook has counted the reply.
        refused: The refusal of a call, or the stop that has cancelled it.
        updates: The updates of the state by hooks, in order.
        cut: The text of the model so far, if its reply was cut off.
        is_counted: Whether the gate has counted the reply already.
    """

    reply: Any = None
    halt: Halt | None = None
    refused: Halt | Pause | None = None
    updates: list[Mapping[str, Any]] = field(default_factory=list)
    cut: AIMessage | None = None
    is_counted: bool = False


class ModelFunction:
    """A function that chooses the model of each call.

    Args:
        function: Returns a chat model, or its name.
        tools: The tools that are bound to each model.
    """

    def __init__(self, function: Any, tools: Sequence[Any]) -> None:
        self._function = StateFunction(
            function,
            ModelError,
            code="model_not_chosen",
            text="no model was chosen for {agent!r}: {why}; let the function return a LangChain "
            "chat model or a name, and resume the turn",
        )
        self._tools = tools
        self._resolve = lru_cache(KEPT_NAMES)(resolve_model)

    def choose(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Plan[BoundModel | Halt]:
        """Return the model of a call, or the halt that has ended the function.

        Raises:
            ModelError: The function raised, or returned no model; the model has no tool calls; a
                model of that name cannot be made.
            EventLoopMissing: The function is async, and the run is not a session's.
        """
        chosen = yield self._function.build_step(past, state, config)
        return chosen if isinstance(chosen, Halt) else self._bind_tools(chosen, config)

    def _bind_tools(self, chosen: Any, config: Mapping[str, Any]) -> BoundModel:
        model: Any = self._resolve(chosen) if isinstance(chosen, str) and chosen else chosen
        if isinstance(model, type) or not callable(getattr(model, "bind_tools", None)):
            raise self._function.refuse(chosen, config)
        if not supports_tool_calls(model):
            raise model_cannot_call(require_identity(config).agent, type(model).__name__)
        timed = model if takes_timeout(model) else None
        return BoundModel.from_runnable(model.bind_tools(self._tools), timed, model)


def supports_tool_calls(model: Any) -> bool:
    """Return whether a model supports tool calls; that of a function is known when it is asked."""
    # `BaseChatModel` has the method, but it only raises.
    return getattr(type(model), "bind_tools", None) is not BaseChatModel.bind_tools
