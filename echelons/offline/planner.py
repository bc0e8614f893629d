"""The offline planner: it plans the next reply by rules, as a LangChain chat model.

A turn has two steps: all fitting calls are made at once, and then their results are composed. No
call is repeated, whatever its result. Contributions are quoted verbatim with their sources;
everything that is lacking is listed at the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from echelons.offline.team import MAX_SUBORDINATES, TaskShare, TeamIndex, split_task
from echelons.offline.tool_calls import (
    NamedCall,
    NamedCalls,
    Toolbox,
    choose_tools,
    fill_arguments,
)
from echelons.offline.turn import CallAnswer, PlannerTurn, TaskBrief, TaskContext
from echelons.offline.words import TokenizedText
from echelons.text.stemming import extract_words, stem
from echelons.tree.names import CALL_SUBORDINATE, REPORT, get_provider_tool_name

TaskSharing = Callable[[TeamIndex, TokenizedText, Sequence[str]], Sequence[TaskShare]]
"""Selects the subordinates for a task, from the team, the task and the part that is meant."""

NearestNote = Callable[[str], str]
"""Returns what comes nearest to a task that is refused; empty if nothing does."""

PLANNER_NAME: Final = "offline planner"
NOTHING_FITS: Final = "nothing here can do this"

PROVIDER: Final = "echelons"

CHARACTERS_PER_TOKEN: Final = 4
"""A rule of thumb for English; no tokenizer is used, as no language model reads the text."""

MAX_REASON_CHARACTERS: Final = 300
"""Characters of a reason that are quoted; an error may have a page of them."""

_ASKS: Final = " asks: "


@dataclass(frozen=True)
class PlannedReply:
    """The planner's reply: a text, or else calls that are made all at once."""

    text: str = ""
    calls: NamedCalls = ()
    # A task whose words name no subordinate, and the reply that gives it to one by its name.
    unplaced: str = ""
    place: Callable[[str], PlannedReply] | None = None


def plan_reply(
    turn: PlannerTurn,
    box: Toolbox,
    sharing: TaskSharing = split_task,
    describe_nearest: NearestNote | None = None,
) -> PlannedReply:
    """Return the next reply in `turn`."""
    if turn.called_tools:
        return _build_final_reply(turn, box)
    if not turn.context.task.text.strip():
        return _report_unable(box, "there is no task")
    context, shares = _share_task(turn.context, box.team, sharing)
    choice = choose_tools(box.own_tools, context, alone=not shares)
    if calls := (*_build_delegations(context, shares, box), *choice.calls):
        return PlannedReply(calls=calls)
    if not choice.missing:
        task = turn.context.task.text
        nearest = describe_nearest(task) if describe_nearest else ""
        refusal = _report_unable(box, NOTHING_FITS, nearest)
        return replace(refusal, unplaced=task, place=partial(_place_task, refusal, context, box))
    needed = f"{choice.tool} needs to know: {', '.join(choice.missing)}"
    if box.can_report:
        return _build_report("needs_input", needed, reason=needed)
    return PlannedReply(f"I cannot go on yet: {needed}.")


def _place_task(
    refusal: PlannedReply, context: TaskContext, box: Toolbox, name: str
) -> PlannedReply:
    """Return the calls that give a task to a subordinate, or the refusal if there is none."""
    if name not in box.team.names:
        return refusal
    return PlannedReply(calls=tuple(_build_delegations(context, [TaskShare(name, ())], box)))


def _share_task(
    context: TaskContext, team: TeamIndex, sharing: TaskSharing
) -> tuple[TaskContext, Sequence[TaskShare]]:
    """Return the shares of the task; if there are none, those of the last task that had some."""
    shares = sharing(team, context.task, context.part)
    for text in () if shares else context.earlier:
        if shares := sharing(team, text, ()):
            part = tuple(dict.fromkeys(word for share in shares for word in share.words))
            ground = context.background or text.text
            return replace(context, brief=replace(context.brief, part=part, earlier=ground)), shares
    if not shares and len(team) == len(team.without_capabilities) == 1:
        # An only subordinate that declares no capabilities may still be able to do it.
        return context, (TaskShare(team.names[0], ()),)
    return context, shares


def _build_delegations(
    context: TaskContext, shares: Sequence[TaskShare], box: Toolbox
) -> Iterator[NamedCall]:
    """Yield a call for each share, with the whole task and the part that is meant.

    A subordinate with a tool of its own gets what the task says of the tool's parameters.
    """
    large = len(box.team) > MAX_SUBORDINATES
    all_words = {word for share in shares for word in share.words}
    for share in shares:
        limited = bool(context.part) or set(share.words) != all_words
        part = share.words if limited and not large else ()
        brief = TaskBrief(context.brief.task, part, context.background)
        if tool := box.typed.get(share.name):
            trade = frozenset(map(stem, extract_words(tool.name)))
            filled = fill_arguments(tool, replace(context, brief=brief), trade)
            if not filled.missing:
                yield tool.name, filled.values
                continue
        arguments = {"message": str(brief), "subordinate": share.name, "reset": False}
        yield CALL_SUBORDINATE, arguments


def _build_final_reply(turn: PlannerTurn, box: Toolbox) -> PlannedReply:
    """Return the composed answers, as a report where it is not a plain success."""
    answers = [answer for answer in turn.answers if answer.source != REPORT]
    contributions = _select_contributions(answers)
    questions, failures = (
        _describe_questions(answers),
        ", ".join(
            f"{answer.source} ({_shorten_line(answer.reason) or 'empty answer'})"
            for answer in answers
            if answer.status == "unable"
            or (answer.status != "needs_input" and not answer.text.strip())
        ),
    )
    # The answer: each contribution under its source, then what is lacking.
    is_plain = len(contributions) == 1 and not contributions[0].delegated
    parts = [a.text if is_plain else f"{a.source}:\n{a.text}" for a in contributions]
    lacking = [
        f"Incomplete: {answer.source} ({_shorten_line(answer.reason)})"
        for answer in contributions
        if answer.status == "partial" and answer.reason and answer.reason != answer.text
    ]
    if questions:
        lacking.append(f"Open question: {questions}")
    if failures:
        lacking.append(f"Not available: {failures}")
    text = "\n\n".join([*parts, *(["\n".join(lacking)] if lacking else [])])
    if not box.can_report or REPORT in turn.called_tools:
        return PlannedReply(text or NOTHING_FITS)
    if questions:
        return _build_report("needs_input", text, reason=questions)
    if not contributions:
        reason = failures or NOTHING_FITS
        return _build_report("unable", text or NOTHING_FITS, reason=reason)
    # A composed answer is as certain as the best of its contributions.
    ratings = [answer.confidence for answer in contributions if answer.confidence is not None]
    if not ratings:
        return PlannedReply(text)
    return _build_report("fulfilled", text, confidence=max(ratings))


def _select_contributions(answers: Iterable[CallAnswer]) -> list[CallAnswer]:
    """Return the answers with content, the best first among those to the same question."""
    filled = [a for a in answers if a.status in ("fulfilled", "partial") and a.text.strip()]
    requests: dict[str, int] = {}
    for answer in filled:
        requests.setdefault(answer.request, len(requests))

    def rank(answer: CallAnswer) -> tuple[int, float]:
        # Only answers to the same question compete; results of tools have none to rank by.
        confidence = (answer.confidence or 0.0) if answer.delegated else 0.0
        return requests[answer.request], -confidence

    return sorted(filled, key=rank)


def _describe_questions(answers: Iterable[CallAnswer]) -> str:
    """Return the open questions of the sources, joined into one line."""
    questions = []
    for answer in answers:
        if answer.status == "needs_input":
            question = _shorten_line(answer.reason or answer.text)
            # A question passed up through several levels keeps the source that asked it first.
            questions.append(question if _ASKS in question else f"{answer.source}{_ASKS}{question}")
    return "; ".join(questions)


def _shorten_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON_CHARACTERS else f"{line[:MAX_REASON_CHARACTERS]}…"


def _report_unable(box: Toolbox, reason: str, nearest: str = "") -> PlannedReply:
    nearest = f"\n\n{nearest}" if nearest else ""
    if box.can_report:
        return _build_report("unable", f"Not available: {reason}{nearest}", reason=reason)
    introduction = (
        f"I am the {PLANNER_NAME}: I match words and pass tasks on, but do not think for myself. "
        f"I cannot help with this: {reason}."
    )
    return PlannedReply(" ".join([introduction, *_describe_abilities(box)]) + nearest)


def _describe_abilities(box: Toolbox) -> Iterator[str]:
    if box.team.names:
        yield f"I can ask: {_list_names(box.team.names)}."
    if box.own_tools:
        yield f"I can use: {_list_names([tool.name for tool in box.own_tools])}."
    if not box.team.names and not box.own_tools:
        yield "I have no subordinates and no tools; give this agent some, or a language model."


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SUBORDINATES} more" if len(names) > MAX_SUBORDINATES else ""
    return ", ".join(names[:MAX_SUBORDINATES]) + more


def _build_report(
    status: str, result: str, reason: str = "", confidence: float | None = None
) -> PlannedReply:
    arguments: dict[str, Any] = {"status": status, "result": result}
    if confidence is not None:
        arguments["confidence"] = confidence
    if reason:
        arguments["reason"] = reason
    return PlannedReply(calls=((REPORT, arguments),))


@runtime_checkable
class SubordinateFinder(Protocol):
    """Finds the subordinate for a task whose words name none, as the router of a tree does."""

    def find(self, task: str) -> str:
        """Return the name of the subordinate; empty if none fits."""
        ...

    async def afind(self, task: str) -> str:
        """Async version of `find`."""
        ...


class OfflinePlanner(BaseChatModel):
    """A chat model that plans by rules, offline and deterministically.

    It splits the last human message among the subordinates whose capabilities it names,
    calls the agent's own tools with arguments taken from it, and composes what comes back.
    If its words name none, the router of its tree may find one. It does not reason: if no rule
    matches, it replies that it cannot do the task. The same
    messages and tools give the same answer, call ids included; it keeps no state between calls
    and needs no key and no network. Replies carry `model_name: "offline planner"`.

    Examples:
        >>> planner = OfflinePlanner().bind_tools([
        ...     {"name": "find_food", "description": "Places to eat",
        ...      "parameters": {"type": "object", "required": ["place"],
        ...                     "properties": {"place": {"type": "string"}}}},
        ... ])
        >>> planner.invoke("Where can we eat in Rome?").tool_calls[0]["args"]
        {'place': 'Rome'}
    """

    sharing: TaskSharing = Field(default=split_task, exclude=True, repr=False)
    """Selects the subordinates to ask; by their declared capabilities, if left out."""

    finder: SubordinateFinder | None = Field(default=None, exclude=True, repr=False)
    """Finds a subordinate that no word of the task names; a tree gives it its router."""

    describe_nearest: NearestNote | None = Field(default=None, exclude=True, repr=False)
    """Returns what a refusal adds: what comes nearest to the task; nothing, if left out."""

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the planner with tools bound; a `tool_choice` is stored but has no effect."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        # It has no provider that could run a tool.
        callable_tools = [
            convert_to_openai_tool(tool) for tool in tools if not get_provider_tool_name(tool)
        ]
        return self.bind(tools=callable_tools, **kwargs)

    @property
    def _llm_type(self) -> str:
        return "echelons-offline-planner"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return LangSmithParams(
            ls_provider=PROVIDER, ls_model_name=PLANNER_NAME, ls_model_type="chat"
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = self._plan(messages, kwargs)
        if reply.place and self.finder and self.sharing is split_task:
            reply = reply.place(self.finder.find(reply.unplaced))
        return _build_result(messages, kwargs, reply)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = self._plan(messages, kwargs)
        if reply.place and self.finder and self.sharing is split_task:
            reply = reply.place(await self.finder.afind(reply.unplaced))
        return _build_result(messages, kwargs, reply)

    def _plan(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> PlannedReply:
        turn, box = PlannerTurn.from_messages(messages), Toolbox.from_tools(_get_tools(options))
        return plan_reply(turn, box, self.sharing, self.describe_nearest)


def _get_tools(options: Mapping[str, Any]) -> Sequence[Any]:
    return options.get("tools") or ()


def _build_result(
    messages: Sequence[BaseMessage], options: Mapping[str, Any], reply: PlannedReply
) -> ChatResult:
    message = build_message(messages, _get_tools(options), reply)
    return ChatResult(generations=[ChatGeneration(message=message)])


def build_message(
    messages: Sequence[BaseMessage], tools: Sequence[Any], reply: PlannedReply | None = None
) -> AIMessage:
    """Return the planner's message in reply to `messages`, with `tools` in OpenAI's format."""
    if reply is None:
        reply = plan_reply(PlannerTurn.from_messages(messages), Toolbox.from_tools(tools))
    texts = [_write_message(message) for message in messages]
    # The calls, with ids hashed from the conversation and their index in the message.
    conversation = "\n".join(texts)
    seed = hashlib.sha256(conversation.encode("utf-8", "surrogatepass"))
    calls: list[ToolCall] = []
    for index, (name, arguments) in enumerate(reply.calls):
        digest = seed.copy()
        line = f"\n{index} {name} {_to_json(arguments)}"
        digest.update(line.encode("utf-8", "surrogatepass"))
        id_ = f"call_{digest.hexdigest()[:24]}"
        calls.append(ToolCall(name=name, args=arguments, id=id_, type="tool_call"))
    read = _count_tokens(*texts, *([_to_json(tools)] if tools else []))
    written = _count_tokens(reply.text, *(_to_json(call["args"]) for call in calls))
    usage = UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
    return AIMessage(
        content=reply.text,
        tool_calls=calls,
        usage_metadata=usage,
        response_metadata={
            "model_name": PLANNER_NAME,
            "model_provider": PROVIDER,
            "finish_reason": "tool_calls" if calls else "stop",
        },
    )


def _write_message(message: BaseMessage) -> str:
    """Return the type, text and calls of a message, without its random id."""
    calls: Iterable[ToolCall] = message.tool_calls if isinstance(message, AIMessage) else ()
    lines = "".join(f"\n{call['name']} {_to_json(call['args'])}" for call in calls)
    return f"{message.type}: {message.text}{lines}"


def _count_tokens(*texts: str) -> int:
    return sum(-(-len(text) // CHARACTERS_PER_TOKEN) for text in texts)


def _to_json(value: object) -> str:
    return json.dumps(value, default=str)
