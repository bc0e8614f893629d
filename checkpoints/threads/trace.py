"""`Thread` and `Trace`: a conversation, and a root's threads as a tree of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from textwrap import shorten
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.checkpoints.queries import OneCheckpoint
from echelons.checkpoints.thread_events import (
    EventKind,
    ThreadEvent,
    UserAction,
    build_thread_events,
    pair_events,
)
from echelons.delegation.calls import (
    Candidates,
    is_built_in_call,
    iterate_requests,
    load_candidates,
    request_as_sent,
)
from echelons.delegation.mail import Mail, load_mail
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status
from echelons.errors import UnreadableRecord
from echelons.identity.lineage import ASIDE_KEY, THREADS_KEY, derive_message_id
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import PATH_SEPARATOR, SEND_MESSAGE


@dataclass(frozen=True, slots=True)
class Thread:
    """One agent's conversation.

    Attributes:
        id: Its own id.
        agent: Name of the agent.
        path: Names from the root to the agent.
        root_thread_id: LangGraph's `thread_id`, under which it is stored.
        superior_thread_id: Thread of the superior that called it; empty for a root.
        name: Its name; only roots have names.
        segments: Number of requests that it has worked on; 1 for a root, 0 if it has not begun.
        begun_at: When its first checkpoint that is left was stored, ISO 8601, UTC; empty if it has
            not begun.
        messages: The conversation, oldest first; that of a foreign graph with its tool calls.
        latest: Its last checkpoint; `None` if it has not begun.
    """

    id: str
    agent: str
    path: AgentPath
    root_thread_id: str
    superior_thread_id: str
    name: str
    segments: int
    begun_at: str
    messages: tuple[BaseMessage, ...]
    latest: OneCheckpoint | None

    @property
    def events(self) -> tuple[ThreadEvent, ...]:
        """The conversation as events, each call paired with its answer."""
        return pair_events(build_thread_events(self.messages, self.agent, self.id))


CUT_SHORT = "cut short: its superior has ended"
"""The reason of a request that has no answer and will not get one."""


class LinkState(StrEnum):
    """State of the link from a call to the thread that it names.

    `OK`: the thread exists and names its superior. `NOT_STARTED`: the call is stored, but has
    not run yet. `REFUSED`: answered without a run. `BROKEN`: anything else.
    """

    OK = "ok"
    NOT_STARTED = "not_started"
    REFUSED = "refused"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request to a subordinate, and its outcome.

    Attributes:
        call_id: Id of the call.
        sent: The request as it was sent in this attempt; the deadline of a second or later
            attempt is not stored.
        response: The response, without the result if there were several attempts: that stays
            in the thread. `None` while it is open, or if it cannot be read.
        status: Its status; `None` while it is open.
        reason: Why it is not fulfilled, or that an agent without tools has asked no subordinate.
    """

    call_id: str
    sent: DelegationRequest
    response: DelegationResponse | None
    status: Status | None
    reason: str

    @property
    def task(self) -> str:
        """The task of the request."""
        return self.sent.task


@dataclass(frozen=True, slots=True)
class Trace:
    """A thread and everything below it.

    Attributes:
        thread_id: Id of the thread; it has no rows if `state` is not `OK`.
        agent: Name of its agent.
        superior_thread_id: Thread that called it; empty for a root.
        state: State of the link to it.
        requests: The requests that it was sent, in order; empty for a root.
        tools: Its own tool calls, by name, in order; those of a foreign graph, too.
        mail: The messages of its mailbox that it has read, in order.
        progress: The messages to the user while it was at work, if it is a root.
        user_actions: The answers and the decisions on its calls that people gave it, in order; of a
            root also the orders for any agent. Only `SqliteCheckpointer` keeps them.
        subordinates: The threads that it called, in order.
        alias: Its agent's name for people; empty if it has none.
        hidden: Ids of its messages that a repair hides from its model.
    """

    thread_id: str
    agent: str
    superior_thread_id: str
    state: LinkState
    requests: tuple[TracedRequest, ...]
    tools: tuple[str, ...]
    subordinates: tuple[Trace, ...]
    mail: tuple[Mail, ...] = ()
    progress: tuple[str, ...] = ()
    user_actions: tuple[UserAction, ...] = ()
    alias: str = ""
    hidden: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """Status of the latest request: `open` while it has no answer, `root` for a root."""
        if not self.superior_thread_id:
            return "root"
        last = self.requests[-1].status if self.requests else None
        return str(last) if last else "open"

    def walk(self) -> Iterator[Trace]:
        """Yield this thread and all below it, superiors first."""
        yield self
        for subordinate in self.subordinates:
            yield from subordinate.walk()

    def with_user_actions(self, actions: Sequence[UserAction]) -> Trace:
        """Return the trace with what people gave its agents, each with its own thread."""
        actions_of_thread = tuple(
            action for action in actions if action.agent_thread_id == self.thread_id
        )
        below = tuple(subordinate.with_user_actions(actions) for subordinate in self.subordinates)
        return replace(self, user_actions=actions_of_thread, subordinates=below)

    def with_aliases(self, aliases: Mapping[str, str], path: str) -> Trace:
        """Return the trace, from an agent with a path, with the names for people of its agents.

        Args:
            aliases: The names, by the paths of the agents.
            path: Path of the agent at the top.
        """
        below = tuple(
            subordinate.with_aliases(aliases, f"{path}{PATH_SEPARATOR}{subordinate.agent}")
            for subordinate in self.subordinates
        )
        return replace(self, alias=aliases.get(path, ""), subordinates=below)

    def with_hidden(self, hidden: Mapping[str, tuple[str, ...]]) -> Trace:
        """Return the trace with the messages that are hidden from its models, by thread."""
        below = tuple(subordinate.with_hidden(hidden) for subordinate in self.subordinates)
        return replace(self, hidden=hidden.get(self.thread_id, ()), subordinates=below)

    @property
    def text(self) -> str:
        """The trace as lines of text, each with its thread's id."""
        return "\n".join(_format_lines(self, "", ""))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TraceLink:
    """The link from a call to the thread that it names.

    Attributes:
        superior_thread_id: Thread of the calling agent.
        sub_agent_thread_id: Thread that the call names.
        agent: Name of the called agent.
        state: State of the link.
    """

    superior_thread_id: str
    sub_agent_thread_id: str
    agent: str
    state: LinkState

    @property
    def holds(self) -> bool:
        """Whether the link is intact."""
        return self.state is not LinkState.BROKEN


def build_trace(thread_id: str, threads: Mapping[str, Thread], ended: bool = False) -> Trace:
    """Return the trace under a thread.

    Args:
        thread_id: The thread at the top.
        threads: All stored threads, by id.
        ended: Whether its agent has ended; then its open requests will not be answered.
    """
    thread = threads[thread_id]
    tools = tuple(_list_tools(thread.messages))
    subordinates = tuple(_build_subordinates(thread, threads, ended))
    superior = thread.superior_thread_id
    mail = tuple(_list_mail(thread.messages))
    progress = tuple(_list_progress(thread.messages))
    return Trace(
        thread_id, thread.agent, superior, LinkState.OK, (), tools, subordinates, mail, progress
    )


def find_request(superior: Thread, thread_id: str) -> TracedRequest | None:
    """Return the first request of a superior to a subordinate's thread, if there is one."""
    requests = _iterate_requests(superior, ended=False)
    return next((request for called, request in requests if called == thread_id), None)


def list_links(trace: Trace) -> list[TraceLink]:
    """Return every link of a trace, superiors first."""
    return [
        TraceLink(link.superior_thread_id, link.thread_id, link.agent, link.state)
        for link in trace.walk()
        if link.superior_thread_id
    ]


def _build_subordinates(
    thread: Thread, threads: Mapping[str, Thread], ended: bool
) -> Iterator[Trace]:
    called: dict[str, list[TracedRequest]] = {}
    for sub_thread_id, request in _iterate_requests(thread, ended):
        called.setdefault(sub_thread_id, []).append(request)
    for sub_thread_id, requests in called.items():
        stored = threads.get(sub_thread_id)
        if stored and _is_from_earlier_run(stored, thread, threads):
            continue
        state = _get_link_state(stored, thread.id, requests)
        subordinate = Trace(
            sub_thread_id, requests[0].sent.current, thread.id, state, tuple(requests), (), ()
        )
        # A broken link is not followed: it may lead back up.
        if state is LinkState.OK:
            whole = build_trace(sub_thread_id, threads, requests[-1].status is not None)
            with_tasks = tuple(_with_task(request, threads[sub_thread_id]) for request in requests)
            subordinate = replace(whole, requests=with_tasks)
        yield subordinate


def _is_from_earlier_run(stored: Thread, root: Thread, threads: Mapping[str, Thread]) -> bool:
    """Return whether a call was made by an earlier run of the same root.

    Embedded in a graph that shares its `messages`, a root sees the messages of its earlier runs,
    calls included; those links belong to the run that made them.
    """
    caller = threads.get(stored.superior_thread_id)
    return (
        caller is not None
        and caller.id != root.id
        and caller.path == root.path
        and not caller.superior_thread_id
        and not root.superior_thread_id
    )


def _get_link_state(
    stored: Thread | None, superior: str, requests: Sequence[TracedRequest]
) -> LinkState:
    if stored is not None:
        return LinkState.OK if stored.superior_thread_id == superior else LinkState.BROKEN
    if all(request.status is None or request.reason == CUT_SHORT for request in requests):
        return LinkState.NOT_STARTED
    refused = all(request.status in (None, Status.UNABLE) for request in requests)
    return LinkState.REFUSED if refused else LinkState.BROKEN


def _iterate_requests(thread: Thread, ended: bool) -> Iterator[tuple[str, TracedRequest]]:
    messages = thread.messages
    tasks = [
        place
        for place, message in enumerate(messages)
        if isinstance(message, HumanMessage) and ASIDE_KEY not in message.response_metadata
    ]
    for place, message in enumerate(messages):
        threads = _get_thread_ids(message)
        if not threads or not isinstance(message, AIMessage):
            continue
        # A stopped agent leaves its calls unanswered, and their requests are abandoned.
        abandoned = ended or (tasks and place < tasks[-1])
        following = (messages[after] for after in range(place + 1, len(messages)))
        # Some models reuse a call id in their next message: stop at it.
        results = takewhile(lambda message: not isinstance(message, AIMessage), following)
        answers = {
            message.tool_call_id: message for message in results if isinstance(message, ToolMessage)
        }
        for call, parted in iterate_requests(message, message.tool_calls):
            call_id = call.call_id
            if call_id not in threads:
                continue
            response = _load_response(answers.get(parted.call_id if parted else call_id))
            if parted:
                response = _get_part_response(response, parted.parts.index(call))
            first = request_as_sent(call, parted, message, thread.agent, thread.id)
            candidates = load_candidates(message, call_id)
            for thread_id, attempt in _iterate_attempts(
                call_id, first, candidates, threads[call_id], response
            ):
                cut = abandoned and attempt.status is None
                yield (
                    thread_id,
                    replace(attempt, status=Status.UNABLE, reason=CUT_SHORT) if cut else attempt,
                )


def _iterate_attempts(
    call_id: str,
    first: DelegationRequest,
    candidates: Candidates,
    thread_id: str,
    response: DelegationResponse | str | None,
) -> Iterator[tuple[str, TracedRequest]]:
    """Yield the thread id and the record of every attempt at a request."""
    if not isinstance(response, DelegationResponse):
        status = None if response is None else Status.UNABLE
        yield thread_id, TracedRequest(call_id, first, None, status, response or "")
        return
    # The responses of other requests, such as the parts of a call, have other ids.
    tried = [
        other
        for other in response.subordinate_responses
        if other.thread_id and other.request_id == response.request_id
    ]
    for attempt, reply in enumerate(tried, start=1):
        request = first if attempt == 1 else _build_later_request(first, attempt, reply, candidates)
        yield reply.thread_id, TracedRequest(call_id, request, reply, reply.status, reply.reason)
        yield from _iterate_side_requests(call_id, request, reply)
    if not tried:
        yield thread_id, TracedRequest(call_id, first, response, response.status, response.reason)
        yield from _iterate_side_requests(call_id, first, response)


def _iterate_side_requests(
    call_id: str, first: DelegationRequest, response: DelegationResponse
) -> Iterator[tuple[str, TracedRequest]]:
    """Yield the threads and the requests with which middleware asked others meanwhile."""
    for side in response.side_responses:
        sent = DelegationRequest(
            id=side.request_id, origin=first.origin, current=side.agent, task="", path=side.path
        )
        yield side.thread_id, TracedRequest(call_id, sent, side, side.status, side.reason)


def _with_task(request: TracedRequest, thread: Thread) -> TracedRequest:
    """Return a request with its task, which that of a middleware has in its thread only."""
    if request.task:
        return request
    message_id = derive_message_id(thread.id, request.sent.id)
    task = next((str(message.text) for message in thread.messages if message.id == message_id), "")
    return replace(request, sent=request.sent.model_copy(update={"task": task}))


def _build_later_request(
    first: DelegationRequest, attempt: int, response: DelegationResponse, candidates: Candidates
) -> DelegationRequest:
    """Return a request as it was sent in a second or later attempt."""
    way = (
        candidates.remaining[attempt - 1]
        if len(candidates.remaining) >= attempt
        else response.path.parts[1:2]
    )
    current, *route = way or (response.agent,)
    changed = {
        "current": current,
        "path": first.path.parent / current,
        "route": tuple(route),
        "attempts": attempt,
        "why": candidates.reasons.get((current, *route)[-1], ""),
    }
    return first.model_copy(update={**changed, "budget": {}, "deadline": None})


def _get_part_response(
    response: DelegationResponse | str | None, place: int
) -> DelegationResponse | str | None:
    """Return the response to one part of a call; that to the whole call if it is unknown."""
    if isinstance(response, DelegationResponse) and place < len(response.subordinate_responses):
        return response.subordinate_responses[place]
    return response


def _list_tools(messages: Sequence[BaseMessage]) -> Iterator[str]:
    for message in messages:
        if not isinstance(message, AIMessage):
            continue
        threads = _get_thread_ids(message)
        for call in message.tool_calls:
            if call["id"] not in threads and not is_built_in_call(message, call["name"]):
                yield call["name"]


def _list_mail(messages: Sequence[BaseMessage]) -> Iterator[Mail]:
    for message in messages:
        if isinstance(message, HumanMessage) and ASIDE_KEY in message.response_metadata:
            mail = load_mail(str(message.text), message.response_metadata[ASIDE_KEY])
            # What the library says by itself has no sender.
            if mail.kind != "notice":
                yield mail


def _list_progress(messages: Sequence[BaseMessage]) -> Iterator[str]:
    for message in messages:
        # What other agents send their superior is in its mailbox.
        if isinstance(message, ToolMessage) and message.name == SEND_MESSAGE:
            sent: object = message.artifact
            if isinstance(sent, Mapping) and "text" in sent:
                yield str(sent["text"])


def _get_thread_ids(message: BaseMessage) -> Mapping[str, str]:
    threads: Any = message.response_metadata.get(THREADS_KEY) if message.response_metadata else None
    return threads if isinstance(threads, Mapping) else {}


def _load_response(answer: ToolMessage | None) -> DelegationResponse | str | None:
    """Return the response to a call, why it cannot be read, or `None` while it is open."""
    if answer is None:
        return None
    try:
        return DelegationResponse.load(answer.artifact)
    except UnreadableRecord as error:
        return str(error)


def _format_user_action(action: UserAction) -> str:
    text, by = shorten(action.text, 100, placeholder="…"), action.data.get("by")
    if action.kind is EventKind.ORDER:
        return f"{text} of {action.data['path']} ordered by {by}"
    what = "decision" if action.kind is EventKind.APPROVAL else "answer"
    return f"{what} of {by}: {text}" if by else f"{what} taken at the deadline: {text}"


def _format_lines(trace: Trace, first: str, rest: str) -> Iterator[str]:
    status = trace.status if trace.state is LinkState.OK else str(trace.state)
    tools = f"  [{', '.join(trace.tools)}]" if trace.tools else ""
    why = shorten(trace.requests[-1].reason, 100, placeholder="…") if trace.requests else ""
    reason = f"  {why}" if why else ""
    name = f"{trace.agent} ({trace.alias})" if trace.alias else trace.agent
    yield f"{first}{name}  {status}  {trace.thread_id}{tools}{reason}"
    request = trace.requests[-1].sent if trace.requests else None
    if request and request.why:
        target = f"{request.route[-1]}: " if request.route else ""
        yield f"{rest}{'│' if trace.subordinates else ' '}     why: {target}{request.why}"
    lines = [
        f"{mail.kind} from {mail.sender}{f' to {mail.to}' if mail.to else ''}: "
        f"{shorten(mail.text, 100, placeholder='…')}"
        for mail in trace.mail
    ]
    lines += [f"told the user: {shorten(text, 100, placeholder='…')}" for text in trace.progress]
    lines += [_format_user_action(action) for action in trace.user_actions]
    lines += [f"hidden from its model: {message_id}" for message_id in trace.hidden]
    for line in lines:
        yield f"{rest}{'│' if trace.subordinates else ' '}     {line}"
    last = len(trace.subordinates) - 1
    for place, subordinate in enumerate(trace.subordinates):
        turn, below = ("└── ", "    ") if place == last else ("├── ", "│   ")
        yield from _format_lines(subordinate, rest + turn, rest + below)
