"""`PromptMemory`: makes a conversation fit into the budget of its agent, at each call of its model.

First the results of tools are trimmed, then the oldest turns become summaries, at last steps of
the present turn. Only the prompt changes: the thread keeps all, and the summaries stand in the
metadata of the reply, so that a fork has those of its past and nothing is summarised twice.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from echelons.errors import ContextTooLarge
from echelons.guards.gate import Gate, Step
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import require_identity
from echelons.memory.settings import Memory
from echelons.memory.summaries import Summaries, SummaryRequest, extract_summary
from echelons.nodes.memory.token_count import TokenCount, count_tokens
from echelons.nodes.memory.window import (
    find_summaries,
    find_window,
    iterate_pins,
    render_turn,
    split_steps,
    split_turns,
    trim_result,
)
from echelons.plans import adrive_plan, drive_plan
from echelons.prompts import load_memory_texts
from echelons.text.error_lines import describe_error
from echelons.tree.names import PATH_SEPARATOR

LOG = logging.getLogger(__name__)
KEPT_SHARE = 0.75
"""Share of the budget down to which is summarised, so that it is not done at each call."""
TRIMMED_SHARE = 10
"""An older result of a tool keeps a tenth of the budget at most."""


class MemoryView(NamedTuple):
    """What a model reads of a conversation.

    Attributes:
        system: Its instructions, with the summaries and what is pinned.
        messages: The messages that stay.
        noted: What the reply keeps of it in its metadata.
    """

    system: SystemMessage | None
    messages: list[BaseMessage]
    noted: Mapping[str, Any]


MemoryPlan = Generator[SummaryRequest, str, MemoryView]


class PromptMemory:
    """The memory of one agent.

    Args:
        settings: Its settings.
        model: The agent's model without its tools, which writes summaries; `None` for extracts.
    """

    def __init__(self, settings: Memory, model: Any = None) -> None:
        self._settings = settings
        self._model = model

    def shorten(
        self,
        system: SystemMessage | None,
        messages: list[BaseMessage],
        gate: Gate,
        config: RunnableConfig,
    ) -> MemoryView:
        """Return what the model reads of a conversation.

        Raises:
            ContextTooLarge: The instructions, the task and the open calls do not fit alone.
            UnreadableRecord: Stored summaries are damaged.
        """

        def summarize(request: SummaryRequest) -> str:
            if self._model is None or gate.enter(Step.MODEL, config):
                return extract_summary(request.text, request.limit)
            try:
                reply = self._model.invoke(_build_summary_prompt(request), config)
                gate.leave(reply, config)
            except Exception as error:  # noqa: BLE001  an extract does as well
                return _extract_instead(request, error, config)
            return _read_summary(reply, request)

        return drive_plan(self._plan(system, messages, config), summarize)

    async def ashorten(
        self,
        system: SystemMessage | None,
        messages: list[BaseMessage],
        gate: Gate,
        config: RunnableConfig,
    ) -> MemoryView:
        """Async version of `shorten`."""

        async def summarize(request: SummaryRequest) -> str:
            if self._model is None:
                return extract_summary(request.text, request.limit)
            refused = await gate.arun(lambda: gate.enter(Step.MODEL, config))
            if refused:
                return extract_summary(request.text, request.limit)
            try:
                reply = await self._model.ainvoke(_build_summary_prompt(request), config)
                await gate.arun(lambda: gate.leave(reply, config))
            except Exception as error:  # noqa: BLE001  an extract does as well
                return _extract_instead(request, error, config)
            return _read_summary(reply, request)

        return await adrive_plan(self._plan(system, messages, config), summarize)

    def _plan(
        self, system: SystemMessage | None, messages: list[BaseMessage], config: RunnableConfig
    ) -> MemoryPlan:
        known = summaries = find_summaries(messages)
        window = messages[find_window(messages, summaries) :]
        budget, recent = self._settings.budget, self._settings.recent
        # Twice as many turns come together before they are summarised, so that it is rarer.
        turns = split_turns(window)
        if len(turns) > 2 * recent:
            summaries, window = yield from self._fold(summaries, window, turns[-recent])
        view = self._build_view(system, summaries, window, messages)
        if view.size.tokens > budget:
            summaries, window = yield from self._fit(system, summaries, window, messages)
            view = self._build_view(system, summaries, window, messages, trims=True)
            if view.size.tokens > budget:
                window = _trim_last_step(window, budget, view.size.tokens)
                view = self._build_view(system, summaries, window, messages, trims=True)
        if view.size.tokens > budget:
            path = PATH_SEPARATOR.join(require_identity(config).path)
            raise ContextTooLarge(path, view.size.tokens, budget)
        noted: dict[str, Any] = {"tokens": view.size.tokens, "counted_by": view.size.counted_by}
        if summaries is not known:
            noted |= summaries.stored()
        return MemoryView(view.system, view.messages, noted)

    def _fit(
        self,
        system: SystemMessage | None,
        summaries: Summaries,
        window: list[BaseMessage],
        messages: list[BaseMessage],
    ) -> Generator[SummaryRequest, str, tuple[Summaries, list[BaseMessage]]]:
        """Summarise turns, then steps of the present one, until the rest fits or no more can go."""
        if self._count(system, summaries, window, messages) <= self._settings.budget:
            return summaries, window
        target = self._settings.budget * KEPT_SHARE
        while self._count(system, summaries, window, messages) > target:
            begins = split_turns(window)
            if len(begins) == 1:
                # Of the present turn the task stays, which is shown before the window, and so
                # does the last step.
                begins = split_steps(window)[_has_task(window[:1]) :]
            if len(begins) < 2:
                break
            summaries, window = yield from self._fold(summaries, window, begins[1])
        return summaries, window

    def _fold(
        self, summaries: Summaries, window: list[BaseMessage], place: int
    ) -> Generator[SummaryRequest, str, tuple[Summaries, list[BaseMessage]]]:
        """Summarise the messages of a window before a place."""
        old = window[:place]
        begins = [*split_turns(old), len(old)]
        texts = [render_turn(old[begin:end]) for begin, end in pairwise(begins) if begin < end]
        pins = [*iterate_pins(old)]
        folded = yield from summaries.plan_fold(
            [each for each in texts if each], old[-1].id or "", place, pins, self._settings.budget
        )
        return folded, window[place:]

    def _count(
        self,
        system: SystemMessage | None,
        summaries: Summaries,
        window: list[BaseMessage],
        messages: list[BaseMessage],
    ) -> int:
        return self._build_view(system, summaries, window, messages, trims=True).size.tokens

    def _build_view(
        self,
        system: SystemMessage | None,
        summaries: Summaries,
        window: list[BaseMessage],
        messages: list[BaseMessage],
        *,
        trims: bool = False,
    ) -> _View:
        pins = (*summaries.pins, *iterate_pins(window))
        whole = _add_summaries(system, summaries, pins)
        shown = window
        if trims and window:
            limit = self._settings.budget * 4 // TRIMMED_SHARE
            last = split_steps(window)[-1:] or [0]
            shown = [*(trim_result(each, limit) for each in window[: last[0]]), *window[last[0] :]]
        if not _has_task(shown) and (task := _find_task(messages, len(messages) - len(window))):
            shown = [task, *shown]
        return _View(whole, shown, count_tokens([*([whole] if whole else []), *shown]))


class _View(NamedTuple):
    system: SystemMessage | None
    messages: list[BaseMessage]
    size: TokenCount


def _has_task(window: Sequence[BaseMessage]) -> bool:
    return any(isinstance(each, HumanMessage) for each in window)


def _find_task(messages: Sequence[BaseMessage], end: int) -> BaseMessage | None:
    """Return the latest task before a place: that of the turn whose steps are summarised."""
    earlier = reversed(messages[:end])
    return next((each for each in earlier if isinstance(each, HumanMessage)), None)


def _trim_last_step(window: list[BaseMessage], budget: int, tokens: int) -> list[BaseMessage]:
    """Return a window whose last results of tools are cut to what is left of the budget."""
    begin = (split_steps(window)[-1:] or [0])[0]
    results = [each for each in window[begin:] if isinstance(each, ToolMessage)]
    if not results:
        return window
    size = sum(len(str(each.text)) for each in results)
    # As many characters as are too many, by the tokens that they were counted as.
    too_many = (tokens - budget) * max(4, size // max(1, tokens)) + 80 * len(results)
    limit = max(0, (size - too_many) // len(results))
    return [*window[:begin], *(trim_result(each, limit) for each in window[begin:])]


def _add_summaries(
    system: SystemMessage | None, summaries: Summaries, pins: Sequence[str]
) -> SystemMessage | None:
    """Return the instructions with the summaries and the pins behind them."""
    parts: list[str] = []
    if told := summaries.render():
        parts.append(f"{load_memory_texts()['summaries']}\n{told}")
    if pins:
        listed = "\n".join(f"- {each}" for each in pins)
        parts.append(f"{load_memory_texts()['pins']}\n{listed}")
    if not parts:
        return system
    text = "\n\n".join(parts)
    if system is None:
        return SystemMessage(text)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{text}"})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": text}]})


def _build_summary_prompt(request: SummaryRequest) -> list[BaseMessage]:
    words = max(10, request.limit // 7)
    return [
        SystemMessage(f"{load_memory_texts()['summarizer']} At most {words} words."),
        HumanMessage(request.text),
    ]


def _read_summary(reply: Any, request: SummaryRequest) -> str:
    text = " ".join(str(reply.text).split()) if isinstance(reply, AIMessage) else ""
    # A model that says nothing, or too much, is no reason to lose what was said.
    return extract_summary(text or request.text, request.limit)


def _extract_instead(request: SummaryRequest, error: Exception, config: RunnableConfig) -> str:
    why = describe_error(error, get_failure_log(config).redactor)
    LOG.warning("a summary could not be written, and is an extract instead: %s", why)
    return extract_summary(request.text, request.limit)
