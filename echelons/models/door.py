"""`ask`: the one way to a chat model, which charges a request, and shortens a long one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, get_executor_for_config
from langchain_core.runnables.utils import gather_with_concurrency

from echelons.guards.budget import Allowance, Budgets, get_allowance, get_budgets
from echelons.guards.gate import (
    OPEN_GATE,
    CallUsage,
    Gate,
    Halt,
    NotedCall,
    Pause,
    Step,
    get_gate,
)
from echelons.identity.lineage import SHORTENED_KEY, is_from_model
from echelons.models.bound_model import FIND_HALT, BoundModel
from echelons.models.fitting import BYTES_PER_TOKEN, count_cautiously, fit_messages
from echelons.models.hidden_messages import leave_out_hidden
from echelons.models.notices import View, clean_reply, get_view
from echelons.models.replies import LengthRefusal, read_length_refusal
from echelons.models.usage import (
    build_noted_call,
    estimate_call,
    get_whole_usage,
    is_counted,
    read_usage,
)
from echelons.plans import Plan, PlanStep, arun_plan_steps, build_step, run_plan_steps
from echelons.run_context import get_context

MAX_ATTEMPTS: Final = 4
"""How often one request is shortened at most."""
KEPT_SHARE: Final = 0.75
"""Share of an accepted length that later requests have at most."""
REPLY_SHARE: Final = 8
"""An eighth of a context is left for the reply, where nothing says how long that may be."""
_SAFE_SHARE: Final = 0.95
"""Share of the length that a refusal names, as the counts of both sides differ."""


class ShownLimit(dict[str, Any]):
    """How many tokens a model is shown at most, in the metadata of a reply from `ask`.

    It has a class of its own, as a provider may write anything under our key.
    """


class FittedRequest:
    """A request of a model, as long as the model takes it."""

    def __init__(
        self,
        model: BoundModel,
        messages: Sequence[BaseMessage],
        hidden: frozenset[str],
        view: View | None = None,
    ) -> None:
        self._model = model
        self._whole = messages
        # Ids of messages that the model is not shown.
        self._hidden = hidden
        self._view = view
        self._attempts = 0
        self._shown: Sequence[BaseMessage] | None = None
        self._limit = _find_stored_limit(messages, model.description.name)
        if self._limit:
            self._show(self._fit(self._limit))
        else:
            # What is sent.
            self.messages = model.requests.build(messages, hidden, view)

    def shorten(self, error: Exception) -> bool:
        """Show less after an error; return whether it was a refusal for length that this mends."""
        if self._attempts == MAX_ATTEMPTS or (refusal := read_length_refusal(error)) is None:
            return False
        tokens = count_cautiously(self._show_whole() if self._shown is None else self._shown)
        shorter = self._fit(self._choose_target(refusal, tokens))
        accepted = count_cautiously(shorter)
        if accepted >= tokens:
            # The instructions alone are too long.
            return False
        self._attempts += 1
        self._limit = max(1, int(accepted * KEPT_SHARE))
        self._show(shorter)
        return True

    def note_limit(self, reply: Any) -> Any:
        """Return a reply with the length that the next request has at most, if there is one."""
        if not self._limit or not isinstance(reply, AIMessage):
            return reply
        noted = ShownLimit(tokens=self._limit, model=self._model.description.name)
        metadata = {**reply.response_metadata, SHORTENED_KEY: noted}
        return reply.model_copy(update={"response_metadata": metadata})

    def _show_whole(self) -> Sequence[BaseMessage]:
        whole = leave_out_hidden(self._whole, self._hidden)
        return self._view.show_all(whole) if self._view else whole

    def _fit(self, limit: int) -> list[BaseMessage]:
        whole = self._show_whole()
        fitted = fit_messages(whole, limit, count_cautiously)
        return self._view.show_new(fitted, whole) if self._view else fitted

    def _show(self, messages: Sequence[BaseMessage]) -> None:
        self._shown = messages
        self.messages = self._model.requests.build(messages, self._hidden)

    def _choose_target(self, refusal: LengthRefusal, tokens: int) -> int:
        """Return how many tokens to show next, by our count."""
        half = tokens // 2
        if refusal.limit and refusal.requested:
            target = int(tokens * refusal.limit / refusal.requested * _SAFE_SHARE)
        elif limit := refusal.limit or self._read_profile():
            schemas = len(repr(self._model.arguments)) // BYTES_PER_TOKEN
            reply = getattr(self._model.model, "max_tokens", None)
            if not (isinstance(reply, int) and 0 < reply < limit):
                reply = limit // REPLY_SHARE
            target = limit - schemas - reply
        else:
            return half
        # What was named has not helped: the counts of both sides differ.
        return half if self._attempts or not 0 < target < tokens else target

    def _read_profile(self) -> int:
        profile = getattr(self._model.model, "profile", None)
        limit = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
        return limit if isinstance(limit, int) else 0


def _find_stored_limit(messages: Sequence[BaseMessage], model: str) -> int:
    """Return the length that the latest reply of a model has stored; 0 for none."""
    for message in reversed(messages):
        if message.type != "ai":
            continue
        if SHORTENED_KEY in (metadata := message.response_metadata):
            noted = metadata[SHORTENED_KEY]
            is_own = isinstance(noted, Mapping) and noted.get("model") == model
            tokens = noted.get("tokens") if is_own else None
            return tokens if isinstance(tokens, int) and tokens > 0 else 0
        if is_from_model(metadata):
            return 0
    return 0


_SECONDS_OVER = Halt("budget", "the seconds of work are over")


class CallRefused(BaseException):
    """Ends a call of a model that must not begin or go on, with those that middleware wraps around.

    No `Exception`: a retry or a fallback would catch that.
    """

    def __init__(self, halt: Halt | Pause) -> None:
        super().__init__(halt)
        self.halt = halt

    @property
    def reason(self) -> str:
        """Why, in one line."""
        if isinstance(self.halt, Halt):
            return self.halt.reason
        return f"{self.halt.path} is paused"


def check_halt() -> None:
    """End the model call of this thread between two chunks, if its agent must end.

    Raises:
        CallRefused: It must: it was stopped or dismissed, is late, or has lost a race.
    """
    if (find_halt := FIND_HALT.get()) and (halt := find_halt()):
        raise CallRefused(halt)


class Account(NamedTuple):
    """The place where the calls of an agent are charged."""

    budgets: Budgets
    allowance: Allowance
    # Of the node that calls.
    config: Mapping[str, Any]
    # Runs the blocking work of `budgets` in an event loop.
    arun: Callable[[Callable[[], Any]], Awaitable[Any]] = OPEN_GATE.arun

    @classmethod
    def find(cls, config: Mapping[str, Any], gate: Gate) -> Self | None:
        """Return the account of the agent at work; `None` if nothing limits what it may spend."""
        allowance = get_allowance(config, gate)
        return cls(get_budgets(gate), allowance, config, gate.arun) if allowance else None


def ask(
    model: BoundModel,
    messages: Sequence[BaseMessage],
    config: RunnableConfig,
    account: Account | None = None,
) -> Plan[Any]:
    """Return a model's reply to some messages. The gate has admitted the call.

    Raises:
        CallRefused: The agent has a budget, of which nothing is left.
    """
    context = get_context(config)
    gate, view = context.gate or OPEN_GATE, context.view
    account = account or Account.find(config, gate)
    request = FittedRequest(model, messages, gate.hidden_messages, view)
    reply, is_charged = yield from _send(model, request, config, account)
    if gate.limits_tokens and isinstance(reply, AIMessage) and not get_whole_usage(reply):
        # A limit that what is not reported does not reach would be none.
        allowance = account.allowance if account else None
        call = build_noted_call(model.description, request.messages, reply, allowance)
        call = call._replace(was_admitted=True, has_record=is_charged, is_reply=True)
        yield build_step(partial(gate.note_call, call, config), gate.arun)
    return clean_reply(reply, view.mark) if view else reply


def _send(
    model: BoundModel, request: FittedRequest, config: RunnableConfig, account: Account | None
) -> Plan[tuple[Any, bool]]:
    """Return the reply to a request, and whether a budget was charged with it, see `ask`."""
    if account is None:
        return (yield from _call(model, request, config)), False
    budgets, allowance, account_config, arun = account
    estimate = estimate_call(model.description, request.messages, allowance)
    reserve = partial(budgets.reserve, estimate, allowance, account_config)
    reserved = yield build_step(reserve, arun)
    if isinstance(reserved, Halt):
        raise CallRefused(reserved)
    used: CallUsage | None = None
    try:
        reply = yield from _call(model, request, config, account)
        used = read_usage(model.description, request.messages, reply, allowance)
    except asyncio.CancelledError:
        yield build_step(partial(budgets.charge_cancelled, reserved), arun)
        reserved = ""
        raise
    finally:
        budgets.charge(reserved, used, account_config)
    return reply, bool(reserved)


def _call(
    model: BoundModel,
    request: FittedRequest,
    config: RunnableConfig,
    account: Account | None = None,
) -> Plan[Any]:
    """Return the reply to a request, which is shortened as long as it is refused for its length.

    A refused call has cost nothing, and is not counted.
    """
    while True:
        step = model.build_step(request.messages, config)
        if account:
            step = step._replace(arun=partial(_call_in_time, step, account))
        try:
            reply = yield step
        except Exception as error:
            if not request.shorten(error):
                raise
        else:
            return request.note_limit(reply)


async def _call_in_time(step: PlanStep, account: Account) -> Any:
    """Await a call, and cut it off when the seconds of its budget are over.

    Raises:
        CallRefused: They are.
    """
    allowance = account.allowance
    if "seconds" not in allowance.grants:
        return await step.arun()
    left = await account.arun(partial(account.budgets.get_seconds_left, allowance))
    timer = asyncio.timeout(left)
    try:
        async with timer:
            return await step.arun()
    except TimeoutError:
        if timer.expired():
            raise CallRefused(_SECONDS_OVER) from None
        raise


def ask_beside(
    model: BoundModel,
    messages: Sequence[BaseMessage],
    config: RunnableConfig,
    *,
    may_pause: bool = False,
) -> Plan[Any]:
    """Return a model's reply to a request beside an agent's own step, such as a summary.

    It is admitted, counted and charged as a call of the agent at work. Unless it `may_pause`, it
    belongs to work that has begun, which a pause lets finish.

    Raises:
        CallRefused: A limit, a budget or an order forbids it.
    """
    gate = get_gate(config)
    request = FittedRequest(model, messages, gate.hidden_messages)
    if is_counted(config):
        # A tool asks, whose calls are counted when they end.
        return (yield from _call(model, request, config))
    halt = yield build_step(partial(gate.enter, Step.MODEL, config), gate.arun)
    if isinstance(halt, Halt) or (halt and may_pause):
        raise CallRefused(halt)
    account = Account.find(config, gate)
    reply, is_charged = yield from _send(model, request, config, account)
    allowance = account.allowance if account else None
    call = build_noted_call(model.description, request.messages, reply, allowance)
    call = call._replace(was_admitted=not halt, has_record=is_charged, reply_id="")
    yield build_step(partial(gate.note_call, call, config), gate.arun)
    return reply


def note_dropped(
    model: BoundModel, messages: Sequence[BaseMessage], reply: Any, config: RunnableConfig
) -> Plan[None]:
    """Record a reply of an agent's own step that no thread keeps, as its middleware asked again."""
    if view := get_view(config):
        messages = view.show_all(messages)
    call = build_noted_call(model.description, messages, reply, get_allowance(config))
    # One that reports nothing was recorded for the limit of tokens.
    has_record = get_gate(config).limits_tokens and call.used.usage is None
    return (yield from _note_own(call._replace(has_record=has_record, has_left=True), config))


def note_cut(
    model: BoundModel,
    messages: Sequence[BaseMessage],
    reply: BaseMessage,
    config: RunnableConfig,
    *,
    is_kept: bool,
) -> Plan[None]:
    """Record a reply that was cut off, which the gate has not seen; the thread may have kept it."""
    call = build_noted_call(model.description, messages, reply, get_allowance(config))
    is_estimated = get_gate(config).limits_tokens and call.used.usage is None
    call = call._replace(has_record=is_kept and not is_estimated, is_reply=is_kept)
    return (yield from _note_own(call, config))


def _note_own(call: NotedCall, config: RunnableConfig) -> Plan[None]:
    """Record a call of an agent's own step, unless a budget was charged with it."""
    gate, allowance = get_gate(config), get_allowance(config)
    is_charged = bool(allowance and allowance.grants.keys() - {"seconds", "tool_calls"})
    call = call._replace(was_admitted=True, has_record=call.has_record or is_charged, reply_id="")
    yield build_step(partial(gate.note_call, call, config), gate.arun)


def ask_quietly(model: Any, instructions: str, question: str) -> Plan[Any]:
    """Return a model's reply to a question that is no part of any stream, see `ask_beside`.

    The agent at work is that around the caller; outside of a tree, nothing is counted.
    """
    messages = [SystemMessage(instructions), HumanMessage(question)]
    # Without the tag, the reply would appear in a run's stream of messages.
    bound = model if isinstance(model, BoundModel) else BoundModel.from_runnable(model)
    return (yield from ask_beside(bound, messages, find_config("nostream")))


def ask_all(questions: Sequence[Plan[Any]], max_concurrency: int) -> Plan[list[Any]]:
    """Return the results of questions to models, some at once; an error in place of a result."""
    config = RunnableConfig(max_concurrency=max_concurrency)

    def run() -> list[Any]:
        with get_executor_for_config(config) as executor:
            return [*executor.map(_run_question, questions)]

    async def arun() -> list[Any]:
        return await gather_with_concurrency(max_concurrency, *map(_arun_question, questions))

    results: list[Any] = yield PlanStep(run, arun)
    return results


def _run_question(plan: Plan[Any]) -> Any:
    try:
        return run_plan_steps(plan)
    except CallRefused as refused:
        return RuntimeError(refused.reason)
    except Exception as error:  # noqa: BLE001  as LangChain's `batch` does
        return error


async def _arun_question(plan: Plan[Any]) -> Any:
    try:
        return await arun_plan_steps(plan)
    except CallRefused as refused:
        return RuntimeError(refused.reason)
    except Exception as error:  # noqa: BLE001  as above
        return error


def find_config(*tags: str) -> RunnableConfig:
    """Return the config of the node around the caller, with further tags; an empty one outside."""
    config = ensure_config()
    config["tags"] = [*(config.get("tags") or ()), *tags]
    return config
