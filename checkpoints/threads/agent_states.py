"""The state of each agent of a thread, as its checkpoints and the ledger say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from types import MappingProxyType

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.coordination.agent_aliases import list_aliases
from echelons.checkpoints.coordination.dismissal_ledger import read_dismissals
from echelons.checkpoints.coordination.orders import ControlOrders
from echelons.checkpoints.ledger import build_key
from echelons.checkpoints.queries import (
    AgentThread,
    AgentThreads,
    LedgerQuery,
    ReadPlan,
)
from echelons.checkpoints.storage.serde import to_json_text
from echelons.checkpoints.threads.answer_outbox import read_stored_answers
from echelons.checkpoints.threads.control import read_control_orders
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.threads.segments import (
    choose_branch_end,
    find_segment_end,
    get_previous_head,
    list_pending_writes,
    read_past,
    read_segment,
)
from echelons.checkpoints.threads.thread_status import read_thread_status
from echelons.checkpoints.threads.trace import LinkState, Thread, Trace, build_trace
from echelons.delegation.mail import USER
from echelons.delegation.request import Status
from echelons.delegation.spawned_agents import (
    GIVEN,
    AgentSpecification,
    collect_spawned,
    find_damaged,
    find_given_agents,
)
from echelons.errors import ThreadNotFound, UnknownPath
from echelons.features.registry import find_members
from echelons.guards.dismissals import NO_DISMISSALS, Dismissals
from echelons.guards.gate import Pause
from echelons.identity.lineage import Identity, derive_agent_id
from echelons.identity.thread_history import Head
from echelons.text.input_limits import read_text, shorten_repr
from echelons.tree.agent_path import AgentPath
from echelons.tree.agent_registry import AgentKind, AgentRecord, AgentRegistry, AgentState
from echelons.tree.names import NAME_PATTERN, PATH_SEPARATOR

MAX_QUESTION_LENGTH = 200
"""Characters of a question that the registry shows."""


@dataclass(frozen=True, slots=True)
class TreeSnapshot:
    """The facts known of the agents of a root's thread.

    Attributes:
        root_thread_id: LangGraph's id of the thread.
        root_path: Path of the root.
        trace: Its trace on the branch of its latest checkpoint; `None` if it has never run.
        begun: When each thread began, by its id.
        questions: The open questions that agents wait for.
        orders: The stops and pauses of its turn.
        finished: Whether its last turn has ended.
        running: Whether a process is at work on it.
        dismissals: Those that hold.
        aliases: The aliases of agents, by their ids.
        heads: The heads of the threads that each thread has called, by its id.
        turn: The root's current or last turn.
        beside: The members that work beside that turn, by path.
    """

    root_thread_id: str
    root_path: str = ""
    trace: Trace | None = None
    begun: Mapping[str, str] = field(default_factory=dict)
    questions: Sequence[Question] = ()
    orders: ControlOrders = field(default_factory=ControlOrders)
    finished: bool = True
    running: bool = False
    dismissals: Dismissals = NO_DISMISSALS
    aliases: Mapping[str, str] = field(default_factory=dict)
    heads: Mapping[str, Mapping[str, Head]] = field(default_factory=dict)
    turn: str = ""
    beside: Mapping[str, AgentKind] = field(default_factory=dict)

    def build_registry(self, kinds: Mapping[str, AgentKind] | None = None) -> AgentRegistry:
        """Return the agents of the thread.

        Args:
            kinds: Kinds of the members of the tree by path, superiors first; agents that were
                called come after them.
        """
        kinds = {**self.beside, **(kinds or {})}
        traces: dict[str, list[Trace]] = {path: [] for path in kinds if path not in self.beside}
        spawned: dict[str, AgentSpecification] = {}
        dismissed = set[str]()
        for path, trace in _walk(self.trace, self.root_path) if self.trace else ():
            traces.setdefault(path, []).append(trace)
            heads = self.heads.get(trace.thread_id, {})
            made = collect_spawned(heads)
            dismissed.update(_join(path, name) for name in find_damaged(heads, made))
            at_work = {
                subordinate.agent
                for subordinate in trace.subordinates
                if self._is_open(subordinate)
            }
            for name, agent in made.items():
                spawned[_join(path, name)] = agent.spec
                if GIVEN in agent.statuses:
                    # It is there before it is called.
                    traces.setdefault(_join(path, name), [])
                if name not in at_work and agent.is_dismissed(self._find_segment(trace)):
                    dismissed.add(_join(path, name))
        self._add_beside(traces)
        below: dict[str, list[str]] = {path: [] for path in traces}
        roots: list[str] = []
        for path in traces:
            below.get(path.rpartition(PATH_SEPARATOR)[0], roots).append(path)
        questions_by_path: dict[str, list[Question]] = {}
        for question in self.questions:
            questions_by_path.setdefault(question.path, []).append(question)
        ids = {path: derive_agent_id(self.root_thread_id, path) for path in traces}
        records: list[AgentRecord] = []
        left = roots[::-1]
        while left:
            path = left.pop()
            left += reversed(below[path])
            agent_traces, questions = traces[path], questions_by_path.get(path, ())
            superior = path.rpartition(PATH_SEPARATOR)[0]
            dismissal = self.dismissals.find(path)
            finishes = dismissal and dismissal.graceful and any(map(self._is_open, agent_traces))
            if superior in dismissed or (dismissal and not finishes):
                dismissed.add(path)
            state, whom = self._find_state(path, agent_traces, questions)
            if path in dismissed:
                state, whom = AgentState.DISMISSED, ()
            times = [
                self.begun[trace.thread_id]
                for trace in agent_traces
                if trace.thread_id in self.begun
            ]
            made_as = spawned.get(path)
            record = AgentRecord(
                id=ids[path],
                path=AgentPath(path),
                kind=AgentKind(made_as.kind) if made_as else kinds.get(path, AgentKind.DECLARED),
                superior_id=ids.get(superior, ""),
                role=made_as.role if made_as else "",
                spawn_levels=made_as.levels if made_as else 0,
                alias=self.aliases.get(ids[path], ""),
                subordinate_ids=tuple(ids[subordinate] for subordinate in below[path]),
                thread_ids=tuple(trace.thread_id for trace in agent_traces),
                since=min(times, default=""),
                state=state,
                waiting_for=whom,
                question=_format_question(questions[0]) if questions else "",
            )
            records.append(record)
        return AgentRegistry(tuple(records))

    def _add_beside(self, traces: dict[str, list[Trace]]) -> None:
        """Add the members beside the turn, which have no threads, to those of agents, by path."""
        for path in self.beside:
            if path.rpartition(PATH_SEPARATOR)[0] in traces:
                traces[path] = []

    def _find_state(
        self, path: str, traces: Sequence[Trace], questions: Sequence[Question]
    ) -> tuple[AgentState, tuple[str, ...]]:
        """Return the first state that fits a thread of an agent, and for which agent it waits."""
        if path in self.beside and self.running and not self.finished:
            return AgentState.WORKING, ()
        working = [trace for trace in traces if self._is_open(trace)]
        if working and isinstance(self.orders.find_order(path), Pause):
            return AgentState.PAUSED, ()
        whom = [question.addressee or USER for question in questions]
        for trace in working:
            below = (
                _join(path, subordinate.agent)
                for subordinate in trace.subordinates
                if self._is_open(subordinate)
            )
            whom += [one for one in below if not self._is_ended(one)]
        if any(trace.status == Status.NEEDS_INPUT for trace in traces):
            whom.append(path.rpartition(PATH_SEPARATOR)[0])
        if whom:
            return AgentState.WAITING, tuple(dict.fromkeys(whom))
        if working:
            return (AgentState.WORKING if self.running else AgentState.IDLE), ()
        if any(trace.status == Status.UNABLE for trace in traces):
            return AgentState.FAILED, ()
        return (AgentState.DONE if traces else AgentState.IDLE), ()

    def _is_ended(self, path: str) -> bool:
        """Return whether no agent waits any more for an agent, as it was dismissed at once."""
        dismissal = self.dismissals.find(path)
        return dismissal is not None and not dismissal.graceful

    def _find_segment(self, trace: Trace) -> str:
        """Return the request that an agent works on, or the turn of the root; empty for none."""
        if not self._is_open(trace):
            return ""
        return trace.requests[-1].sent.id if trace.requests else self.turn

    def _is_open(self, trace: Trace) -> bool:
        """Return whether an agent has a request without an answer; the root, an unfinished turn."""
        return not self.finished and trace.status in ("root", "open")


def read_registry(root: str, kinds: Mapping[str, AgentKind]) -> ReadPlan[AgentRegistry]:
    """Return the agents of a root's thread, on the branch of its latest checkpoint.

    Args:
        root: The root's thread.
        kinds: Kinds of the members of the tree by path, superiors first.

    Raises:
        ThreadNotFound: The thread has never run, and no agent is known.
    """
    index: dict[str, AgentThread] = yield AgentThreads(root)
    tops = {id_: thread.latest for id_, thread in index.items() if not thread.superior_thread_id}
    if not tops:
        if kinds:
            dismissals = yield from read_dismissals(root)
            return TreeSnapshot(root, dismissals=dismissals).build_registry(kinds)
        raise ThreadNotFound(root)
    # In a tree embedded in another graph, each run is a root of its own: show the latest.
    top = root if root in tops else max(tops, key=lambda id_: tops[id_].checkpoint_id or "")
    branch = yield from _read_branch(top, index)
    status = yield from read_thread_status(root)
    answers = yield from read_stored_answers(root, status)
    orders = yield from read_control_orders(root)
    dismissals = yield from read_dismissals(root)
    holder = yield LedgerQuery(lambda ledger: ledger.get_holder(build_key(root)))
    aliases, beside = yield LedgerQuery(
        lambda ledger: ledger.query(
            lambda open_: (list_aliases(open_, root), find_members(open_, root, branch.turn))
        )
    )
    snapshot = TreeSnapshot(
        root,
        index[top].path,
        build_trace(top, branch.threads),
        {id_: thread.begun_at for id_, thread in index.items() if thread.begun_at},
        status.without_questions(answers).questions,
        orders,
        status.finished,
        running=holder is not None,
        dismissals=dismissals,
        aliases=aliases,
        heads=branch.heads,
        turn=branch.turn,
        beside=beside,
    )
    return snapshot.build_registry(kinds)


def resolve_agent(
    root: str, agent: object, kinds: Mapping[str, AgentKind] = MappingProxyType({})
) -> ReadPlan[AgentPath]:
    """Return the path of an agent of a thread, by its path, its id, or its name for people.

    Any other text is returned as it is: the caller knows which agents it takes.

    Args:
        root: The root's thread.
        agent: The agent.
        kinds: Kinds of the members of the tree by path.

    Raises:
        UnknownPath: It is no text.
    """
    name = read_text(agent)
    if name is None:
        raise UnknownPath(shorten_repr(agent), sorted(kinds))
    if name in kinds or PATH_SEPARATOR in name:
        return AgentPath(name)
    try:
        registry = yield from read_registry(root, kinds)
        return AgentPath(registry.get(name).path)
    except (ThreadNotFound, UnknownPath):
        return AgentPath(name)


@dataclass(slots=True)
class Branch:
    """A thread and those below it, each as far as the branch of the first has come.

    Attributes:
        threads: The threads, by id.
        heads: The heads of those that each has called, by its id; also of the agents that a user
            has given it.
        turn: The turn of the first.
    """

    threads: dict[str, Thread] = field(default_factory=dict)
    heads: dict[str, Mapping[str, Head]] = field(default_factory=dict)
    turn: str = ""


def _read_branch(top: str, index: Mapping[str, AgentThread]) -> ReadPlan[Branch]:
    """Return a thread and those below it, each as far as the branch of the first has come.

    A thread that has called no subordinates comes without its messages, which are not shown.
    """
    below: dict[str, list[str]] = {}
    for thread_id, thread in index.items():
        below.setdefault(thread.superior_thread_id, []).append(thread_id)
    branch = Branch()
    left = [(top, index[top].latest)]
    while left:
        thread_id, end = left.pop()
        thread = index[thread_id]
        messages: tuple[BaseMessage, ...] = ()
        saved: CheckpointTuple | None = (yield end) if thread.calls else None
        if saved is not None:
            messages, heads = yield from _read_conversation(saved, end.thread_id)
            branch.heads[thread_id] = {**find_given_agents(messages), **heads}
            identity = Identity.from_metadata(saved.metadata)
            branch.turn = branch.turn or (identity.turn if identity else "")
            left += (
                (called, choose_branch_end(saved, heads.get(called), index[called].latest))
                for called in below.get(thread_id, ())
            )
        else:
            left += ((called, index[called].latest) for called in below.get(thread_id, ()))
        path = AgentPath(thread.path)
        superior, begun = thread.superior_thread_id, thread.begun_at
        branch.threads[thread_id] = Thread(
            thread_id, path.name, path, end.thread_id, superior, "", 1, begun, messages, end
        )
    return branch


def _read_conversation(
    saved: CheckpointTuple, thread_id: str
) -> ReadPlan[tuple[tuple[BaseMessage, ...], dict[str, Head]]]:
    """Return the messages of a thread up to a checkpoint, and the heads of those that it called."""
    past = yield from read_past(saved, list_pending_writes(saved))
    parts, previous = [past], get_previous_head(saved)
    while earlier := find_segment_end(previous, thread_id):
        segment = yield from read_segment(earlier)
        parts.append(segment.past)
        previous = segment.previous
    messages: list[BaseMessage] = []
    heads: dict[str, Head] = {}
    for part in reversed(parts):
        messages += part.messages
        heads |= part.heads
    return tuple(messages), heads


def _format_question(question: Question) -> str:
    """Return what a question asks, in one line."""
    if calls := question.reviewed_calls:
        text = f"may it call {', '.join(call.tool for call in calls)}?"
    else:
        held = question.value
        held = held.get("question", held) if isinstance(held, Mapping) else held
        text = held if isinstance(held, str) else to_json_text(held)
    return shorten(text, MAX_QUESTION_LENGTH, placeholder="…")


def _walk(trace: Trace, path: str) -> Iterator[tuple[str, Trace]]:
    """Yield the threads of agents, with their paths, superiors first."""
    yield path, trace
    for subordinate in trace.subordinates:
        # A call may name an agent that there is not, and is then refused.
        if subordinate.state in (LinkState.OK, LinkState.NOT_STARTED) and NAME_PATTERN.fullmatch(
            subordinate.agent
        ):
            yield from _walk(subordinate, _join(path, subordinate.agent))


def _join(path: str, name: str) -> str:
    return f"{path}{PATH_SEPARATOR}{name}"
