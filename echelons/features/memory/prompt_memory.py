"""The memory of a prompt: which messages a model still reads, and the summary of the others."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import RunnableConfig

from echelons.delegation.request import Usage
from echelons.delegation.spawned_agents import RosterEntry, read_roster
from echelons.errors import InvalidInput
from echelons.features.feature import Prompt
from echelons.features.memory.settings import Memory
from echelons.guards.gate import get_gate
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import PIN_KEY, PROMPT_KEY, require_identity
from echelons.models.bound_model import BoundModel
from echelons.models.door import CallRefused, ask_beside
from echelons.models.fitting import (
    find_latest_step,
    find_task,
    fit_step,
    is_task,
    recall_roster,
    shorten_call,
)
from echelons.models.hidden_messages import leave_out_hidden
from echelons.models.summaries import Summaries, find_summaries, find_window
from echelons.nodes.long_results import APPROXIMATION_KEY, TokenCounter
from echelons.nodes.messages import read_message_usage
from echelons.plans import Plan
from echelons.prompts import load_memory_texts
from echelons.text.error_lines import describe_error
from echelons.tree.names import PATH_SEPARATOR, get_provider_tool_name

TOPICS = 8
"""Topics from which a paragraph is made."""
PARAGRAPHS = 4
"""Paragraphs from which one is made."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"\w{4,}")


class SummaryRequest(NamedTuple):
    """A text to be summarised."""

    text: str
    limit: int


SummaryPlan = Generator[SummaryRequest, str, Summaries]


def plan_fold(
    summaries: Summaries,
    turns: Sequence[str],
    upto: str,
    count: int,
    pins: Sequence[str],
    share: int,
) -> SummaryPlan:
    """Take up further turns, the oldest first, and return the new summaries."""
    topics, paragraphs = list(summaries.topics), list(summaries.paragraphs)
    for turn in turns:
        # Of a turn an extract is enough: a model is asked about many of them at once.
        topics.append(extract_summary(turn, share // (3 * TOPICS)))
        if len(topics) > TOPICS:
            text = "\n".join(topics)
            paragraphs.append((yield SummaryRequest(text, share // (2 * PARAGRAPHS + 2))))
            topics.clear()
        if len(paragraphs) > PARAGRAPHS:
            text = "\n".join(paragraphs)
            paragraphs = [(yield SummaryRequest(text, share // (2 * PARAGRAPHS + 2)))]
    return replace(
        summaries,
        upto=upto,
        count=summaries.count + count,
        topics=tuple(topics),
        paragraphs=tuple(paragraphs),
        pins=(*summaries.pins, *pins),
    )


def extract_summary(text: str, limit: int) -> str:
    r"""Return the sentences of a text that say most of what it repeats, in their order.

    The first sentence, and the first of the last line, come before all others: they are the task
    and the answer. The others are rated by how often their words occur in the text (Luhn, 1958).

    Examples:
        >>> extract_summary("Find hotels in Rome. Be quick.\nI looked.\nBook the Roma.", 40)
        'Find hotels in Rome. Book the Roma.'
    """
    whole = " ".join(text.split())
    if len(whole) <= limit:
        return whole
    lines = [line for line in text.splitlines() if line.strip()]
    parts = [_SENTENCE.split(" ".join(line.split())) for line in lines]
    sentences = list(dict.fromkeys(sentence for line in parts for sentence in line))
    counts = Counter(_WORD.findall(whole.lower()))

    def rate(sentence: str) -> tuple[bool, float]:
        words = _WORD.findall(sentence.lower())
        weight = sum(counts[word] for word in words) / (len(words) or 1)
        return sentence in (parts[0][0], parts[-1][0]), weight

    kept: set[str] = set()
    left = limit
    for sentence in sorted(sentences, key=rate, reverse=True):
        if len(sentence) + 1 <= left:
            kept.add(sentence)
            left -= len(sentence) + 1
    if not kept:
        return f"{whole[: max(0, limit - 1)]}…"
    return " ".join(sentence for sentence in sentences if sentence in kept)


def iterate_pins(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """Yield the texts that are pinned in some messages."""
    for message in messages:
        if isinstance(message, ToolMessage):
            pinned = message.response_metadata.get(PIN_KEY)
            if isinstance(pinned, str):
                yield pinned


def find_pins(messages: Sequence[BaseMessage]) -> tuple[str, ...]:
    """Return all texts that are pinned in a conversation, oldest first."""
    summaries = find_summaries(messages)
    return (*summaries.pins, *iterate_pins(messages[find_window(messages, summaries) :]))


def split_turns(messages: Sequence[BaseMessage]) -> list[int]:
    """Return the places at which turns begin; what is before the first task is one, too."""
    places = [place for place, message in enumerate(messages) if is_task(message)]
    return places if places[:1] == [0] else [0, *places]


def split_steps(messages: Sequence[BaseMessage]) -> list[int]:
    """Return the places at which steps begin: a reply, with all up to the next one, is one.

    All that has come in after the last reply is of its step, since the model has not read it yet.
    """
    return [place for place, message in enumerate(messages) if isinstance(message, AIMessage)]


def render_turn(messages: Sequence[BaseMessage]) -> str:
    """Return what is said in some messages, for a summary of them."""
    lines: list[str] = []
    for message in messages:
        text = str(message.text)
        if isinstance(message, AIMessage) and message.tool_calls:
            text = f"{text} [{', '.join(call['name'] for call in message.tool_calls)}]".strip()
        if text and not (isinstance(message, ToolMessage) and PIN_KEY in message.response_metadata):
            lines.append(text)
    return "\n".join(lines)


LOG = logging.getLogger(__name__)
KEPT_SHARE = 0.75
"""Share of the budget down to which is summarised, so that it is not done at each call."""
SUMMARY_SHARE = 4
"""The summaries have a quarter of the budget at most."""
LINE_SLACK = 100
"""Characters of a share that its lines may have beside their texts."""
TRIMMED_SHARE = 10
"""An older result of a tool keeps a tenth of the budget at most."""


MemoryPlan = Generator[SummaryRequest, str, Prompt]


class PromptMemory:
    """The memory of one agent."""

    def __init__(self, settings: Memory, model: Any = None) -> None:
        self._settings = settings
        # Writes the summaries, without tools; `None` for extracts.
        self._model = None if model is None else BoundModel.from_runnable(model)
        self._tool_tokens: int | None = None

    def shorten(self, prompt: Prompt, config: RunnableConfig) -> Plan[Prompt]:
        """Return what the model reads of a conversation.

        Raises:
            InvalidInput: The instructions, the pins and the task do not fit alone.
            UnreadableRecord: Stored summaries are damaged.
        """
        if self._tool_tokens is None:
            # What the provider runs has no schema of ours.
            described = [tool for tool in prompt.tools if not get_provider_tool_name(tool)]
            self._tool_tokens = count_tokens_approximately([], tools=described)
        messages = [*leave_out_hidden(prompt.messages, get_gate(config).hidden_messages)]
        # What the model reads of them counts, and what is cut further keeps the id of its result.
        shown = prompt.shorten(messages) if prompt.shorten else messages
        plan, used = self._plan(prompt._replace(messages=shown), config), list[Usage]()
        try:
            request = next(plan)
            while True:
                request = plan.send((yield from self._summarize(request, config, used)))
        except StopIteration as end:
            view: Prompt = end.value
        noted = dict(view.metadata)
        if used:
            noted["usage"] = sum(used, Usage()).model_dump()
        view = view._replace(metadata={**prompt.metadata, PROMPT_KEY: noted})
        if shown is messages:
            return view
        # The others are shortened when they are sent: hooks of middleware get all of them.
        whole = {id(new): old for new, old in zip(shown, messages, strict=True)}
        return view._replace(
            messages=[whole.get(id(message), message) for message in view.messages]
        )

    def _summarize(
        self, request: SummaryRequest, config: RunnableConfig, used: list[Usage]
    ) -> Plan[str]:
        """Return a summary by the model, or an extract if it may not or cannot write one.

        The tokens of the model are added to `used`.
        """
        if self._model is None:
            return extract_summary(request.text, request.limit)
        words = max(10, request.limit // 7)
        instructions = f"{load_memory_texts()['summarizer']} At most {words} words."
        prompt = [SystemMessage(instructions), HumanMessage(request.text)]
        try:
            reply = yield from ask_beside(self._model, prompt, config)
        except CallRefused:
            return extract_summary(request.text, request.limit)
        except Exception as error:  # noqa: BLE001  an extract does as well
            why = describe_error(error, get_failure_log(config).redactor)
            LOG.warning("a summary could not be written, and is an extract instead: %s", why)
            return extract_summary(request.text, request.limit)
        used.append(read_message_usage(reply))
        text = " ".join(str(reply.text).split()) if isinstance(reply, AIMessage) else ""
        # A model that says nothing, or too much, is no reason to lose what was said.
        return extract_summary(text or request.text, request.limit)

    def _plan(self, prompt: Prompt, config: RunnableConfig) -> MemoryPlan:
        system, messages = prompt.system, prompt.messages
        counter = TokenCounter.build(messages, self._tool_tokens or 0)
        identity = require_identity(config)
        segment = identity.request_id or identity.turn
        fitting = _Fitting(self._settings, system, messages, counter, segment)
        before = summaries = find_summaries(messages)
        window = messages[find_window(messages, summaries) :]
        budget, recent = self._settings.budget, self._settings.recent
        # Twice as many turns come together before they are summarised, so that it is rarer.
        turns = split_turns(window)
        if len(turns) > 2 * recent:
            summaries, window = yield from fitting.fold(summaries, window, turns[-recent])
        view = fitting.build_view(summaries, window)
        if view.tokens > budget:
            summaries, window = yield from fitting.fit(summaries, window)
            view = fitting.build_view(summaries, window, trims=True)
            if view.tokens > budget:
                view = fitting.shorten_latest_step(summaries, window)
        if view.tokens > budget:
            path = PATH_SEPARATOR.join(identity.path)
            raise InvalidInput(
                "the model of {agent!r} would read {tokens} tokens, and the budget of its memory "
                "is {budget}: its instructions, pins and task alone; give Memory(budget=…) more, "
                "or a shorter prompt or task, and resume the turn",
                code="context_too_large",
                agent=path,
                tokens=view.tokens,
                budget=budget,
            )
        read = [*([view.system] if view.system else []), *view.messages]
        noted: dict[str, Any] = {
            "tokens": view.tokens,
            "counted_by": counter.counted_by,
            APPROXIMATION_KEY: count_tokens_approximately(read),
        }
        if summaries is not before:
            noted |= summaries.stored()
        return prompt._replace(system=view.system, messages=view.messages, metadata=noted)


class _View(NamedTuple):
    system: SystemMessage | None
    messages: list[BaseMessage]
    tokens: int


class _Fitting:
    """Makes one conversation fit into a budget."""

    def __init__(
        self,
        settings: Memory,
        system: SystemMessage | None,
        messages: list[BaseMessage],
        counter: TokenCounter,
        segment: str,
    ) -> None:
        self._segment = segment
        self._budget = settings.budget
        self._system = system
        self._messages = messages
        self._counter = counter
        self._characters = int(settings.budget * counter.characters_per_token)

    def fit(
        self, summaries: Summaries, window: list[BaseMessage]
    ) -> Generator[SummaryRequest, str, tuple[Summaries, list[BaseMessage]]]:
        """Summarise turns, then steps of the present one, until the rest fits or no more can go."""
        if self.build_view(summaries, window, trims=True).tokens <= self._budget:
            return summaries, window
        target = self._budget * KEPT_SHARE
        while self.build_view(summaries, window, trims=True).tokens > target:
            begins = split_turns(window)
            if len(begins) == 1:
                # Of the present turn the task stays, which is shown before the window, and so
                # does the last step.
                begins = split_steps(window)
            if len(begins) < 2:
                break
            summaries, window = yield from self.fold(summaries, window, begins[1])
        return summaries, window

    def fold(
        self, summaries: Summaries, window: list[BaseMessage], place: int
    ) -> Generator[SummaryRequest, str, tuple[Summaries, list[BaseMessage]]]:
        """Summarise the messages of a window before a place."""
        old = window[:place]
        begins = [*split_turns(old), len(old)]
        texts = [render_turn(old[begin:end]) for begin, end in pairwise(begins) if begin < end]
        pins, share = [*iterate_pins(old)], self._characters // SUMMARY_SHARE
        folded = yield from plan_fold(
            summaries, [text for text in texts if text], old[-1].id or "", place, pins, share
        )
        roster = read_roster(old, self._segment, summaries.roster)
        return replace(folded, roster=roster), window[place:]

    def build_view(
        self, summaries: Summaries, window: list[BaseMessage], *, trims: bool = False
    ) -> _View:
        """Return what the model would read of a window and of summaries of what is before it."""
        shown = window
        if trims and window:
            limit = self._characters // TRIMMED_SHARE
            last = find_latest_step(window)
            shown = [*(shorten_call(message, limit) for message in window[:last]), *window[last:]]
        if find_task(shown) < 0 and (task := self._find_task()):
            shown = [task, *shown]
        shown = [*_recall_roster(summaries), *shown]
        return self._count_view(summaries, window, shown, self._characters // SUMMARY_SHARE)

    def shorten_latest_step(self, summaries: Summaries, window: list[BaseMessage]) -> _View:
        """Return the view of the latest step, cut to what the instructions, pins and task leave.

        If those do not fit alone, it has nothing else.
        """
        task = self._find_task()
        head, step = [task] if task else [], [message for message in window if not is_task(message)]
        head = [*_recall_roster(summaries), *head]
        least = self._count_view(summaries, window, head, 0)
        if least.tokens > self._budget:
            return least
        # The summaries have a half of what is left at most, or nothing.
        room = (self._budget - least.tokens) // 2
        share = int(room * self._counter.characters_per_token) - LINE_SLACK
        whole = self._count_view(
            summaries, window, head, min(share, self._characters // SUMMARY_SHARE)
        )
        base = whole if whole.tokens <= self._budget else least
        shown = [*head, *fit_step(step, self._budget - base.tokens, self._counter.count)]
        return _View(base.system, shown, self._count(base.system, shown))

    def _count_view(
        self,
        summaries: Summaries,
        window: list[BaseMessage],
        shown: list[BaseMessage],
        share: int,
    ) -> _View:
        pins = (*summaries.pins, *iterate_pins(window))
        whole = _add_summaries(self._system, summaries, pins, share)
        return _View(whole, shown, self._count(whole, shown))

    def _count(self, system: SystemMessage | None, shown: list[BaseMessage]) -> int:
        return self._counter.count([*([system] if system else []), *shown])

    def _find_task(self) -> BaseMessage | None:
        """Return the latest task, whose steps may be summarised with it."""
        place = find_task(self._messages)
        return self._messages[place] if place >= 0 else None


def _recall_roster(summaries: Summaries) -> list[BaseMessage]:
    """Return a notice of the subordinates that summarised messages have named."""
    entries = ((name, RosterEntry(*entry)) for name, entry in summaries.roster.items())
    return [recall_roster((*entries,))] if summaries.roster else []


def _add_summaries(
    system: SystemMessage | None, summaries: Summaries, pins: Sequence[str], share: int
) -> SystemMessage | None:
    """Return the instructions with the summaries and the pins behind them.

    Summaries of more characters than their share, which were made when a token was counted as
    more of them, are cut. Without a share there are none.
    """
    parts: list[str] = []
    if share > 0 and (written := summaries.render()):
        written = written if len(written) <= share + LINE_SLACK else extract_summary(written, share)
        parts.append(f"{load_memory_texts()['summaries']}\n{written}")
    if pins:
        listed = "\n".join(f"- {pin}" for pin in pins)
        parts.append(f"{load_memory_texts()['pins']}\n{listed}")
    if not parts:
        return system
    text = "\n\n".join(parts)
    if system is None:
        return SystemMessage(text)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{text}"})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": text}]})
