"""The results of the agents below a root, as the response to its turn shows them.

The messages of a running tree have them. What is stored has the text of an answer once: it is read
from the message of the superior, or from the thread of the agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.queries import OneCheckpoint, ReadPlan
from echelons.checkpoints.threads.segments import (
    find_segment_end,
    list_pending_writes,
    read_past,
    read_segment,
    resolve_heads,
)
from echelons.checkpoints.threads.thread_status import read_turn_status
from echelons.delegation.calls import is_response_message, iterate_requests
from echelons.delegation.contract import Contract, get_contract
from echelons.delegation.request import DelegationResponse
from echelons.identity.lineage import THREADS_KEY, derive_request_id
from echelons.identity.thread_history import Past
from echelons.nodes.planning.final_answer import read_final_answer
from echelons.nodes.planning.relay import RELAYED_RESPONSE_KEY
from echelons.tree.members import Member, walk_tree


def read_nested_results(
    thread_id: str, response: DelegationResponse
) -> ReadPlan[DelegationResponse]:
    """Return the response to a turn with the results below it, read if one is missing."""
    if not any(map(_lacks_result, response.subordinate_responses)):
        return response
    saved: CheckpointTuple | None = yield OneCheckpoint(thread_id)
    if saved and saved.metadata.get("turn_id") != response.request_id:
        status = yield from read_turn_status(thread_id, response.request_id)
        saved = status.checkpoint if status else None
    if saved is None:
        return response
    past = yield from read_past(saved, list_pending_writes(saved))
    return (yield from _Reader(thread_id).read_below(response, past, thread_id))


def _lacks_result(response: DelegationResponse) -> bool:
    lacks = not (response.result or response.failed)
    return lacks or any(map(_lacks_result, response.subordinate_responses))


class _Reader:
    """Reads the threads under a root."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read_below(
        self, response: DelegationResponse, past: Past, thread: str
    ) -> ReadPlan[DelegationResponse]:
        """Return a response with the results below it, from the segment of its agent."""
        if not response.subordinate_responses:
            return response
        sent, answers = _map_requests(past, thread), _list_answers(past)
        heads = yield from resolve_heads(past.heads, self._root)
        below: list[DelegationResponse] = []
        for part in response.subordinate_responses:
            same = (
                answer.result
                for answer in answers
                if (answer.request_id, answer.agent, answer.path)
                == (part.request_id, part.agent, part.path)
            )
            answered = part.model_copy(update={"result": part.result or next(same, "")})
            if any(one.request_id in sent for one in part.subordinate_responses):
                # It joins several requests or attempts of this agent.
                below.append((yield from self.read_below(answered, past, thread)))
                continue
            own = part.thread_id or sent.get(part.request_id, "")
            below.append((yield from self._read_part(answered, heads.get(own), own)))
        return response.model_copy(update={"subordinate_responses": tuple(below)})

    def _read_part(
        self, part: DelegationResponse, head: Mapping[str, Any] | None, thread: str
    ) -> ReadPlan[DelegationResponse]:
        """Return the response to one request with its result, from its agent's thread."""
        end, request = find_segment_end(head, self._root), part.request_id
        while end:
            segment = yield from read_segment(end)
            past, reported = segment.past, segment.past.values.get("response") or {}
            if past.values.get("request") != request:
                end = find_segment_end(segment.previous, self._root)
                continue
            if RELAYED_RESPONSE_KEY in reported:
                # Passed on from an agent further down, whose thread is the only one of the segment.
                [(request, thread)] = _map_requests(past, thread).items()
                heads = yield from resolve_heads(past.heads, self._root)
                end = find_segment_end(heads.get(thread), self._root)
                continue
            if part.output is not None:
                result = json.dumps(part.output.get("value"), ensure_ascii=False)
            else:
                result = str(read_final_answer(reported, past.messages).get("result", ""))
            part = part.model_copy(update={"result": part.result or result})
            return (yield from self.read_below(part, past, thread))
        return part


def _map_requests(past: Past, thread: str) -> dict[str, str]:
    """Return the threads of an agent's requests by their ids."""
    sent: dict[str, str] = {}
    for message in past.messages:
        threads = message.response_metadata.get(THREADS_KEY)
        if threads and isinstance(message, AIMessage):
            for asked, _ in iterate_requests(message, message.tool_calls):
                if asked.call_id in threads:
                    request = derive_request_id(thread, message.id or "", asked.call_id)
                    sent[request] = threads[asked.call_id]
    return sent


def _list_answers(past: Past) -> list[DelegationResponse]:
    """Return the responses that an agent was given."""
    answers: list[DelegationResponse] = []
    for message in past.messages:
        if isinstance(message, ToolMessage) and is_response_message(message) and message.artifact:
            answers.append(DelegationResponse.load(message.artifact))
    return answers


def add_values(response: DelegationResponse, roots: Iterable[Member]) -> DelegationResponse:
    """Return a response with the typed values of all outputs in it.

    Args:
        response: The response of the root.
        roots: The tree, and the agents after which others may be made.
    """
    if not _has_output(response):
        return response
    by_agent: dict[str, Contract] = {}
    by_model: dict[str, Contract] = {}  # of spawned agents, whose names are not in the tree
    for place in (place for root in roots for place in walk_tree(root)):
        contract = get_contract(place.member)
        if contract and contract.output:
            by_agent[place.member.name] = by_model[contract.output.__name__] = contract

    def add(part: DelegationResponse) -> DelegationResponse:
        below = tuple(map(add, part.subordinate_responses))
        model = part.output["model"] if part.output else ""
        contract = by_agent.get(part.agent) or by_model.get(model)
        return part.model_copy(update={"subordinate_responses": below}).with_value(contract)

    return add(response)


def _has_output(response: DelegationResponse) -> bool:
    return response.output is not None or any(map(_has_output, response.subordinate_responses))
