"""Joins the responses of a call with several requests into its answer. Pure.

`reason` calls it before the model, so that it costs no superstep.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from echelons.delegation.calls import FanOutCall, load_candidates, load_fan_out
from echelons.delegation.join import join_call_responses, settle_responses
from echelons.delegation.request import DelegationRequest, DelegationResponse
from echelons.identity.lineage import NOTICES_KEY, SIDE_BY_SIDE_KEY, Identity, derive_request_id
from echelons.messaging.agent_question import build_question_id
from echelons.messaging.notice import MARK_KEY, create_mark
from echelons.nodes.delegating.queued_request import QueuedRequest, build_tool_message
from echelons.nodes.planning.tool_calls import find_unanswered


@dataclass(frozen=True, slots=True)
class JoinedState:
    """A level's state after the finished calls with several requests have been answered.

    Attributes:
        state: The state.
        added: The messages in it that are not stored yet: answers, and mail.
        finished_parts: The ids of the requests that they are made of, to be deleted from `parts`.
        new_mark: The mark of the thread's notices, if an earlier version has begun the segment.
    """

    state: Mapping[str, Any]
    added: Sequence[BaseMessage] = ()
    finished_parts: Mapping[str, None] = field(default_factory=dict)
    new_mark: str = ""

    @property
    def mark(self) -> str:
        """The mark of the notices in the agent's thread."""
        return str(self.state[MARK_KEY])

    def rebase_update(self, update: dict[str, Any]) -> dict[str, Any]:
        """Return an update of the joined state as an update of the original state."""
        if self.new_mark and update:
            update = {**update, MARK_KEY: self.new_mark}
        if not self.added:
            return update
        whole = {**update, "messages": [*self.added, *update.get("messages", ())]}
        if self.finished_parts:
            whole["parts"] = {**self.finished_parts, **update.get("parts", {})}
        return whole

    def add_messages(self, messages: Sequence[BaseMessage]) -> JoinedState:
        """Return the state with further messages, which the model reads last."""
        state = {**self.state, "messages": [*self.state["messages"], *messages]}
        return replace(self, state=state, added=[*self.added, *messages])

    def replace_message(self, message: BaseMessage) -> JoinedState:
        """Return the state with a message in place of that with its id."""
        messages = [
            message if other.id == message.id else other for other in self.state["messages"]
        ]
        added = [*self.added, message]
        return replace(self, state={**self.state, "messages": messages}, added=added)


def join_parts(state: Mapping[str, Any], identity: Identity) -> JoinedState:
    """Return a level's state with an answer to each call whose requests have all ended."""
    new_mark = "" if state.get(MARK_KEY) else create_mark()
    if new_mark:
        state = {**state, MARK_KEY: new_mark}
    parts: Mapping[str, Any] = state.get("parts") or {}
    if not parts:
        return JoinedState(state, new_mark=new_mark)
    message, calls = find_unanswered(state["messages"])
    if message is None:
        return JoinedState(state, new_mark=new_mark)
    answers = [
        answer
        for call in calls
        if (parted := load_fan_out(message, call["id"] or ""))
        and (answer := build_joint_answer(parted, message, parts, identity))
    ]
    whole = {**state, "messages": [*state["messages"], *answers], "parts": {}}
    return JoinedState(whole, answers, dict.fromkeys(parts), new_mark)


def build_joint_answer(
    fan_out: FanOutCall, message: AIMessage, parts: Mapping[str, Any], identity: Identity
) -> ToolMessage | None:
    """Return the answer to a call with several requests, `None` while one is still open.

    Raises:
        UnreadableRecord: A stored response is damaged.
    """
    thread, head = identity.thread_id, message.id or ""
    ids = [derive_request_id(thread, head, part.call_id) for part in fan_out.parts]
    ended = [parts[each] for each in ids if parts.get(each)]
    if len(ended) < len(ids):
        return None
    load = DelegationResponse.load
    responses = [load(each["response"]) for each in ended]
    attempts = [[load(one) for one in each.get("attempts", ())] for each in ended]
    places = [each["place"] or len(ended) + 1 for each in ended]
    request = DelegationRequest(
        id=derive_request_id(thread, head, fan_out.call_id),
        origin=identity.agent,
        current=identity.agent,
        task="",
        path=(identity.agent,),
    )
    answers: list[tuple[int, int, DelegationResponse]] = []
    for group in fan_out.tasks:
        own = [n for n, each in enumerate(fan_out.parts) if each.group == group]
        candidates = load_candidates(message, fan_out.parts[own[0]].call_id)
        # A request that names a subordinate has one response only.
        answer = responses[own[0]]
        if candidates:
            # For want of width some candidates were tried in sequence: they count like the others.
            every = [attempt for n in own for attempt in attempts[n] or [responses[n]]]
            answer = settle_responses(request, every, candidates.required, candidates.abilities)
        answers.append((min(places[n] for n in own), group, answer))
    # The winner of a race comes first; without a race the order of the requests stays.
    in_order = [answer for *_, answer in sorted(answers, key=lambda each: each[:2])]
    tool = next(call["name"] for call in message.tool_calls if call["id"] == fan_out.call_id)
    order = QueuedRequest(request, fan_out.call_id, thread, continues=False)
    joined = join_call_responses(request, fan_out.join, in_order, responses)
    whole = build_tool_message(order, joined, tool)
    if beside := message.response_metadata.get(SIDE_BY_SIDE_KEY):
        return _add_conversations(whole, fan_out, responses, beside)
    return whole


def _add_conversations(
    answer: ToolMessage,
    fan_out: FanOutCall,
    responses: Sequence[DelegationResponse],
    beside: Collection[str],
) -> ToolMessage:
    """Return an answer with the ids of the conversations of one subordinate, in call order."""
    ids = [
        f'{response.path[1]} answers="{build_question_id(response.thread_id)}"'
        for part, response in zip(fan_out.parts, responses, strict=True)
        if part.call_id in beside and response.thread_id and not response.questions
    ]
    if not ids:
        return answer
    line = f"To continue a conversation, in the order of the requests: {', '.join(ids)}"
    held = answer.response_metadata
    metadata = {**held, NOTICES_KEY: [*held.get(NOTICES_KEY, ()), line]}
    return answer.model_copy(update={"response_metadata": metadata})
