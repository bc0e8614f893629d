"""`AgentModel`: chooses the model of an agent, prepares what it reads, and calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from echelons.features.feature import AgentHooks, AgentStep, ModelCall, Prompt
from echelons.guards.gate import Halt
from echelons.guards.limits import DEFAULT_RESULT_TOKENS
from echelons.models.door.bound_model import BoundModel
from echelons.models.door.notices import Shorten, View, with_view
from echelons.nodes.delegating.cancel_on_stop import CancelOnStop
from echelons.nodes.model_call.long_results import Examination, LongResults
from echelons.nodes.model_call.model_input import ModelAnswer, ModelFunction, ModelInput
from echelons.nodes.model_call.system_prompt import SystemPrompt
from echelons.plans import Plan, PlanStep
from echelons.tree.names import MAX_TOOLS


@dataclass(eq=False)
class AgentModel:
    """The model of one agent.

    Attributes:
        model: The chat model with the agent's tools bound, or a function that chooses one.
        prompt: The prompt before the thread.
        timed_model: The chat model itself, if its calls take a timeout.
        shown_tools: The tools that are bound to the model.
        results: The shown form of long results.
        bind_more: Binds the model to other tools than those shown.
        reading_schema: The tool that reads on in long results, as the model is shown it.
        always_shortens: Whether hooks may add long results to a request that has none.
        announces_notices: Whether the instructions name the mark of what the library says.
    """

    model: Runnable[Any, Any] | ModelFunction
    prompt: SystemPrompt
    timed_model: BaseChatModel | None = None
    shown_tools: Sequence[Any] = ()
    results: LongResults = field(default_factory=lambda: LongResults(DEFAULT_RESULT_TOKENS))
    bind_more: Callable[[Sequence[Any]], Runnable[Any, Any]] | None = None
    reading_schema: Any = None
    always_shortens: bool = False
    announces_notices: bool = False

    def __post_init__(self) -> None:
        self._bound: BoundModel | None = None
        self._reading: BoundModel | None = None
        if not isinstance(self.model, ModelFunction):
            self._bound = BoundModel.from_runnable(self.model, self.timed_model)

    def prepare(
        self, step: AgentStep, prompt_hooks: Sequence[Callable[..., Plan[Prompt]]]
    ) -> Plan[ModelCall | Halt]:
        """Return the call of a step, or the halt that has ended a function of the agent's."""
        past, state = step.past, step.state
        where = (past, state, step.config)
        if self._bound:
            bound = self._bound
        else:
            assert isinstance(self.model, ModelFunction)  # noqa: S101  there is a model, or this
            chosen = yield from self.model.choose(*where)
            if isinstance(chosen, Halt):
                return chosen
            bound = chosen
        system = yield from self.prompt.build(*where)
        if isinstance(system, Halt):
            return system
        messages = [*past.messages, *state["messages"]]
        bound, shorten, more = self._offer_reading(bound, messages)
        prompt = Prompt(system, messages, self.shown_tools, shorten)
        for prepare in prompt_hooks:
            prompt = yield from prepare(prompt, step)
        model_input = ModelInput(prompt.system, prompt.messages, past, state, more)
        view = View(step.joined.mark, self.announces_notices, shorten)
        return ModelCall(step, bound, model_input, with_view(step.config, view), prompt.metadata)

    def ask(self, call: ModelCall) -> Plan[ModelAnswer]:
        """Call the model, within all hooks."""
        where = (call.model, call.config)
        work = PlanStep(partial(call.input.answer, *where), partial(call.input.aanswer, *where))
        return cast("ModelAnswer", (yield work))

    def _offer_reading(
        self, bound: BoundModel, messages: Sequence[BaseMessage]
    ) -> tuple[BoundModel, Shorten | None, Sequence[Any]]:
        """Return the model, what shortens its results, and the tool that reads on in them.

        From the first long result on, the tool is there in every request of the thread.
        """
        examination, shorten = self.results.examine(messages), self.results.shorten
        if examination is Examination.WHOLE:
            return bound, shorten if self.always_shortens else None, ()
        bind = self.bind_more if bound.unbound is None else bound.unbound.bind_tools
        has_room = len(self.shown_tools) < MAX_TOOLS
        if bind is None or examination is not Examination.CUT or not has_room:
            return bound, shorten, ()
        more = (self.reading_schema,)
        if bound is self._bound and self._reading:
            return self._reading, shorten, more
        model = bind([*self.shown_tools, *more])
        reading = BoundModel.from_runnable(model, bound.timed_model, bound.unbound)
        if bound is self._bound:
            self._reading = reading
        return reading, shorten, more


class StopHooks(AgentHooks):
    """Cancels the model call of a root in an event loop; of a subordinate, the level is cancelled.

    They are the loop's, and stand within the hooks of all features.
    """

    def around_model(
        self, call: ModelCall, proceed: Callable[[ModelCall], Plan[ModelAnswer]]
    ) -> Plan[ModelAnswer]:
        """Run the call in a block that a stop ends."""
        return _cancel_on_stop(call, proceed) if call.step.is_async else proceed(call)


def _cancel_on_stop(
    call: ModelCall, proceed: Callable[[ModelCall], Plan[ModelAnswer]]
) -> Plan[ModelAnswer]:
    answer = ModelAnswer()
    with CancelOnStop(call.config) as stopped:
        answer = yield from proceed(call)
    if stopped.halt:
        answer.refused = stopped.halt
    return answer
