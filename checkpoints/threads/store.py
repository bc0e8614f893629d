"""`ThreadStore`: reads the threads of a tree from any LangGraph saver.

Reads a thread, its events and subordinates, the trace of a root as a tree, and checks every
link. None of this needs the graph that wrote the checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from echelons.checkpoints.coordination.agent_aliases import list_aliases_by_path
from echelons.checkpoints.coordination.dismissal_ledger import read_dismissals
from echelons.checkpoints.coordination.gate import METER
from echelons.checkpoints.coordination.journal import read_failures
from echelons.checkpoints.coordination.orders import read_orders
from echelons.checkpoints.coordination.records import read_latest_branch
from echelons.checkpoints.coordination.repairs import read_hidden_messages
from echelons.checkpoints.coordination.turns import OPEN_EPOCH
from echelons.checkpoints.ledger import Ledger, Transaction, build_key
from echelons.checkpoints.queries import (
    AllCheckpoints,
    AllThreadIds,
    LedgerQuery,
    OneCheckpoint,
    ReadPlan,
    Saver,
    UserActions,
    arun_plan,
    run_plan,
)
from echelons.checkpoints.run_config import get_namespace_depth
from echelons.checkpoints.storage.event_rows import LANGGRAPH_METADATA_KEYS
from echelons.checkpoints.thread_events import EventKind, ThreadEvent, UserAction
from echelons.checkpoints.threads.agent_states import read_registry
from echelons.checkpoints.threads.answer_outbox import read_open_questions
from echelons.checkpoints.threads.graph_state import (
    list_open_calls,
    read_graph_calls,
    read_late_answers,
)
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.threads.segments import (
    EARLIER_TURNS_KEY,
    choose_branch_end,
    count_turns,
    find_segment_end,
    get_previous_head,
    list_pending_writes,
    list_segments,
    read_past,
    read_segment,
)
from echelons.checkpoints.threads.thread_usage import read_open_grants, read_usage
from echelons.checkpoints.threads.trace import (
    Thread,
    Trace,
    TraceLink,
    build_trace,
    find_request,
    list_links,
)
from echelons.errors import (
    CheckpointTampered,
    LedgerDamaged,
    LedgerError,
    ThreadNotFound,
    UnreadableRecord,
    invalid_database,
)
from echelons.guards.prices import Prices
from echelons.identity.failures import LoggedFailure
from echelons.identity.lineage import METADATA_KEYS, STORED_KEYS_KEY, Identity
from echelons.identity.thread_history import Head
from echelons.langgraph_internals import DELTA_COUNTERS_KEY
from echelons.text.input_limits import read_text
from echelons.tree.agent_path import AgentPath
from echelons.tree.agent_registry import AgentKind, AgentRegistry
from echelons.tree.names import PATH_SEPARATOR
from echelons.tree.usage_report import GrantedAmount, UsageReport

DAMAGE = (CheckpointTampered, LedgerDamaged, UnreadableRecord)
"""The errors of a thread whose stored rows cannot be read."""
# One input checkpoint a turn is enough, and far fewer rows than all.
_ROOT_INPUTS = {"superior_thread_id": "", "source": "input"}
_SPOILING_KEYS = {DELTA_COUNTERS_KEY, EARLIER_TURNS_KEY}


@dataclass(frozen=True, slots=True)
class RootThread:
    """Summary of a root's thread, for lists.

    Attributes:
        id: LangGraph's `thread_id`.
        name: Its name; empty if it has none.
        agent: The root agent.
        turns: Number of turns, that is, of messages that the user sent.
        updated_at: Time of the last turn, ISO 8601, UTC.
        metadata: The notes of the caller of the last turn; nothing of LangGraph's, and not the
            thread's identity.
        damage: The faults of its rows, as far as they were read; empty if there are none. If
            the root's own rows are damaged, only the id is known.
    """

    id: str
    name: str
    agent: str
    turns: int
    updated_at: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    damage: str = ""


@dataclass(frozen=True, slots=True)
class RootQuestions:
    """The open questions of one root thread.

    Attributes:
        root: The thread; `damage` says why its questions cannot be read.
        questions: The questions, urgent ones first, in the order of the tree.
    """

    root: RootThread
    questions: tuple[Question, ...] = ()


class ThreadStore:
    """Reads threads through any checkpointer; each method has an async version, `a…`.

    A method that is given the id of a thread raises `ThreadNotFound` if there is none.

    Args:
        saver: Any LangGraph checkpoint saver.

    Raises:
        ConfigurationError: It is none.
    """

    def __init__(self, saver: Saver) -> None:
        if not issubclass(type(saver), BaseCheckpointSaver):
            raise invalid_database(saver)
        self._saver = saver

    def roots(self) -> list[RootThread]:
        """Return the root threads of the database, latest first, damaged ones last.

        A damaged thread has its `damage` set, and hides no other. Only the first row of each turn
        is read, and the records of the ledger that the next run reads: damage further down is
        found by what reads it, and by `echelons doctor`.
        """
        return run_plan(self._saver, _read_roots())

    async def aroots(self) -> list[RootThread]:
        """Async version of `roots`."""
        return await arun_plan(self._saver, _read_roots())

    def inbox(self) -> list[RootQuestions]:
        """Return the threads with questions that wait for an answer, latest first.

        A thread that is damaged is listed too, since it may have asked.
        """
        return run_plan(self._saver, _read_inbox())

    async def ainbox(self) -> list[RootQuestions]:
        """Async version of `inbox`."""
        return await arun_plan(self._saver, _read_inbox())

    def get(self, thread_id: str, root: str | None = None) -> Thread:
        """Return a thread; one that a call has named, and that has not begun, is empty.

        After a fork of the past it has its newest segments, which may be of another branch.

        Args:
            thread_id: Its own id.
            root: LangGraph's `thread_id`, to search in that tree only.
        """
        return run_plan(self._saver, _find_thread(thread_id, root))

    async def aget(self, thread_id: str, root: str | None = None) -> Thread:
        """Async version of `get`."""
        return await arun_plan(self._saver, _find_thread(thread_id, root))

    def events(self, thread_id: str, root: str | None = None) -> tuple[ThreadEvent, ...]:
        """Return the events of a thread, oldest first."""
        return self.get(thread_id, root).events

    async def aevents(self, thread_id: str, root: str | None = None) -> tuple[ThreadEvent, ...]:
        """Async version of `events`."""
        return (await self.aget(thread_id, root)).events

    def subordinates(self, thread_id: str, root: str | None = None) -> tuple[str, ...]:
        """Return the ids of the subordinate threads that a thread called, in order."""
        return _list_started_threads(self.get(thread_id, root))

    async def asubordinates(self, thread_id: str, root: str | None = None) -> tuple[str, ...]:
        """Async version of `subordinates`."""
        return _list_started_threads(await self.aget(thread_id, root))

    def trace(self, root: str) -> Trace:
        """Return the threads under a root as a tree, with their requests and tool calls.

        After a fork of the past, each is as far as the branch of the root's latest checkpoint.
        """
        return run_plan(self._saver, _read_trace(_check_thread_id(root)))

    async def atrace(self, root: str) -> Trace:
        """Async version of `trace`."""
        return await arun_plan(self._saver, _read_trace(_check_thread_id(root)))

    def registry(self, root: str, known: Mapping[str, AgentKind] | None = None) -> AgentRegistry:
        """Return the agents that were called on a root's thread, with what each is doing.

        Args:
            root: The root's thread.
            known: Kinds of the members of the tree by path, superiors first: agents that are
                listed in any case.

        Raises:
            ThreadNotFound: The thread has never run, and no agent is known.
        """
        return run_plan(self._saver, read_registry(_check_thread_id(root), known or {}))

    async def aregistry(
        self, root: str, known: Mapping[str, AgentKind] | None = None
    ) -> AgentRegistry:
        """Async version of `registry`."""
        return await arun_plan(self._saver, read_registry(_check_thread_id(root), known or {}))

    def usage(
        self, root: str | None = None, *, branch: bool = False, prices: Prices | None = None
    ) -> UsageReport:
        """Return what the agents of a root's thread have used, or those of all threads.

        Args:
            root: The root's thread; all threads if left out.
            branch: Whether only the branch counts on which a thread goes on. Otherwise what was
                used before a fork of the past counts too, on each branch.
            prices: The costs of the tokens of models.
        """
        return run_plan(self._saver, _read_usage(root, prices, branch))

    async def ausage(
        self, root: str | None = None, *, branch: bool = False, prices: Prices | None = None
    ) -> UsageReport:
        """Async version of `usage`."""
        return await arun_plan(self._saver, _read_usage(root, prices, branch))

    def grants(self, root: str) -> list[GrantedAmount]:
        """Return what was granted in the last turn of a root's thread, to the root and to requests.

        Those of requests that were answered are left out.
        """
        return run_plan(self._saver, read_open_grants(_check_thread_id(root)))

    async def agrants(self, root: str) -> list[GrantedAmount]:
        """Async version of `grants`."""
        return await arun_plan(self._saver, read_open_grants(_check_thread_id(root)))

    def failures(self, root: str) -> tuple[LoggedFailure, ...]:
        """Return the latest failures under a root, at most 100, oldest first."""
        return run_plan(self._saver, read_failures(_check_thread_id(root)))

    async def afailures(self, root: str) -> tuple[LoggedFailure, ...]:
        """Async version of `failures`."""
        return await arun_plan(self._saver, read_failures(_check_thread_id(root)))

    def verify(self, root: str) -> list[TraceLink]:
        """Return every link between the threads under a root, with its state."""
        return list_links(self.trace(root))

    async def averify(self, root: str) -> list[TraceLink]:
        """Async version of `verify`."""
        return list_links(await self.atrace(root))


def _read_usage(root: str | None, prices: Prices | None, branch: bool) -> ReadPlan[UsageReport]:
    thread_id = None if root is None else _check_thread_id(root)
    return read_usage(thread_id, prices, branch=branch)


def _read_roots() -> ReadPlan[list[RootThread]]:
    roots: list[RootThread] = []
    try:
        inputs: list[CheckpointTuple] = yield AllCheckpoints(None, _ROOT_INPUTS)
    except DAMAGE:
        ids: list[str] | None = yield AllThreadIds()
        if ids is None:
            raise
        inputs = []
        for thread_id in ids:
            try:
                inputs += yield AllCheckpoints(thread_id, _ROOT_INPUTS)
            except DAMAGE as error:
                intact = yield from _read_intact_root(thread_id)
                roots.append(replace(intact, damage=str(error)))
    by_thread: dict[str, list[CheckpointTuple]] = {}
    for saved in inputs:
        identity = Identity.from_metadata(saved.metadata)
        if identity is not None:
            by_thread.setdefault(identity.thread_id, []).append(saved)
    whole = [(_build_root_thread(select_root_inputs(rows)), rows) for rows in by_thread.values()]
    turns = {root.id: str(rows[0].metadata.get("turn_id", "")) for root, rows in whole}
    damages: Mapping[str, str] = yield LedgerQuery(lambda ledger: _find_damages(ledger, turns))
    roots += [replace(root, damage=damages.get(root.id, "")) for root, _ in whole]
    return sorted(roots, key=lambda root: (not root.damage, root.updated_at), reverse=True)


def _find_damages(ledger: Ledger, turns: Mapping[str, str]) -> Mapping[str, str]:
    """Return what is wrong with the records that the next run of a thread reads, by thread.

    Args:
        ledger: The ledger.
        turns: The latest turn of each thread, by thread.
    """
    damages: dict[str, str] = {}

    def read(open_: Transaction) -> None:
        for thread_id, turn in turns.items():
            try:
                open_.get_last_holder(build_key(thread_id))
                OPEN_EPOCH.get(open_, thread_id)
                METER.get(open_, thread_id, turn)
                read_orders(open_, thread_id, turn)
            except LedgerError as error:
                damages[thread_id] = str(error)

    ledger.query(read)
    return damages


def _read_intact_root(thread_id: str) -> ReadPlan[RootThread]:
    """Return a damaged root thread from its own rows, or just its id if these are damaged, too."""
    try:
        rows: list[CheckpointTuple] = yield AllCheckpoints(thread_id, _ROOT_INPUTS, "")
    except DAMAGE:
        rows = []
    roots = [row for row in rows if Identity.from_metadata(row.metadata) is not None]
    return _build_root_thread(roots) if roots else RootThread(thread_id, "", "", 0, "")


def _read_inbox() -> ReadPlan[list[RootQuestions]]:
    inbox: list[RootQuestions] = []
    for root in (yield from _read_roots()):
        listed = RootQuestions(root)
        if not root.damage:
            try:
                listed = RootQuestions(root, tuple((yield from read_open_questions(root.id))))
            except DAMAGE as error:
                listed = RootQuestions(replace(root, damage=str(error)))
        if listed.questions or listed.root.damage:
            inbox.append(listed)
    return inbox


def select_root_inputs(inputs: list[CheckpointTuple]) -> list[CheckpointTuple]:
    """Return the input checkpoints of a root itself, from all with its identity.

    Its delegation graphs take input too, in namespaces below its own.
    """
    depths = [get_namespace_depth(row.config["configurable"]["checkpoint_ns"]) for row in inputs]
    return [row for row, depth in zip(inputs, depths, strict=True) if depth == min(depths)]


def _build_root_thread(turns: list[CheckpointTuple]) -> RootThread:
    latest = turns[0]
    identity = Identity.from_metadata(latest.metadata)
    assert identity is not None  # noqa: S101  rows are found by their identity
    return RootThread(
        id=str(latest.config["configurable"]["thread_id"]),
        name=identity.thread_name,
        agent=identity.agent,
        turns=count_turns(turns),
        updated_at=latest.checkpoint["ts"],
        metadata={
            key: value for key, value in latest.metadata.items() if not is_written_by_library(key)
        },
    )


def is_written_by_library(key: str) -> bool:
    """Return whether a metadata key is LangGraph's or the library's own, not a caller's."""
    keys = (*METADATA_KEYS, STORED_KEYS_KEY, EARLIER_TURNS_KEY)
    if key in keys or key in LANGGRAPH_METADATA_KEYS:
        return True
    return key.startswith(("langgraph_", "__"))


def hide_library_metadata(metadata: Mapping[str, Any]) -> dict[str, None]:
    """Return what takes the place of metadata in a caller's config that would spoil its thread.

    LangGraph stores no `None`. Other keys of its own and of ours replace a caller's in any case.
    """
    return dict.fromkeys(_SPOILING_KEYS & metadata.keys())


def _find_thread(thread_id: str, root: str | None) -> ReadPlan[Thread]:
    thread_id = _check_thread_id(thread_id)
    root = None if root is None else _check_thread_id(root)
    rows: list[CheckpointTuple] = yield AllCheckpoints(root, {"agent_thread_id": thread_id})
    if not rows:
        # The empty thread of a call that has not run, or was refused.
        roots = [root] if root else []
        if not root and _is_derived(thread_id):
            roots = [stored.id for stored in (yield from _read_roots()) if not stored.damage]
        for top in roots:
            try:
                threads = yield from _read_threads(top)
            except DAMAGE:
                if root:
                    raise
                continue  # damage of one tree hides nothing of another
            for superior in threads.values():
                if request := find_request(superior, thread_id):
                    agent = request.sent.current
                    path = superior.path / agent
                    return Thread(thread_id, agent, path, top, superior.id, "", 0, "", (), None)
        raise ThreadNotFound(thread_id)
    return (yield from read_thread(rows))[0]


def _check_thread_id(value: Any) -> str:
    text = read_text(value)
    # Half a character (a lone surrogate) cannot be stored, so no thread has it.
    if text is None or text.encode(errors="ignore").decode() != text:
        raise ThreadNotFound(value)
    return text


def _is_derived(thread_id: str) -> bool:
    # Of the threads of subordinates, all ids are UUIDs: a mistyped name costs no search.
    try:
        UUID(thread_id)
    except ValueError:
        return False
    return True


def read_thread(
    rows: list[CheckpointTuple], end: CheckpointTuple | None = None
) -> ReadPlan[tuple[Thread, Mapping[str, Head]]]:
    """Read the thread whose checkpoints these are, and the heads of those that it has called.

    Args:
        rows: The checkpoints, newest first.
        end: The one up to which it is read; the latest if left out.
    """
    newest = end or list_segments(rows)[0]
    identity = Identity.from_metadata(newest.metadata)
    assert identity is not None  # noqa: S101  rows are found by their identity
    latest = _build_query(newest)
    past = yield from read_past(newest, list_pending_writes(newest))
    ended = False
    if list_open_calls(past.messages):
        # Nothing goes on in a thread whose agent was dismissed.
        dismissals = yield from read_dismissals(latest.thread_id)
        dismissal = dismissals.find(PATH_SEPARATOR.join(identity.path))
        ended = dismissal is not None and not dismissal.graceful
    late = yield from read_late_answers(newest, past.messages, ended=ended)
    parts = [(latest.checkpoint_ns, (*past.messages, *late))]
    previous, heads = get_previous_head(newest), dict(past.heads)
    while earlier := find_segment_end(previous, latest.thread_id):
        segment = yield from read_segment(earlier)
        parts.append((earlier.checkpoint_ns, segment.past.messages))
        heads = {**segment.past.heads, **heads}
        previous = segment.previous
    calls = yield from read_graph_calls(rows, [level for level, _ in parts])
    messages = chain.from_iterable(
        _insert_calls(part, calls[level]) for level, part in reversed(parts)
    )
    thread = Thread(
        id=identity.thread_id,
        agent=identity.agent,
        path=AgentPath(identity.path),
        root_thread_id=latest.thread_id,
        superior_thread_id=identity.superior_thread_id,
        name=identity.thread_name if not identity.superior_thread_id else "",
        segments=len(parts),
        begun_at=rows[-1].checkpoint["ts"],
        messages=tuple(messages),
        latest=latest,
    )
    return thread, heads


def _insert_calls(
    part: Sequence[BaseMessage], calls: Sequence[BaseMessage]
) -> Iterator[BaseMessage]:
    """Yield the messages of a segment, with a foreign graph's calls between task and answer."""
    tasks = [message for message in part if isinstance(message, HumanMessage)]
    yield from (*tasks, *calls, *part[len(tasks) :]) if calls else part


def _read_rows(root: str) -> ReadPlan[dict[str, list[CheckpointTuple]]]:
    """Return the checkpoints of all threads under a root by thread, newest first."""
    rows: list[CheckpointTuple] = yield AllCheckpoints(root)
    by_thread: dict[str, list[CheckpointTuple]] = {}
    for row in rows:
        identity = Identity.from_metadata(row.metadata)
        if identity is not None:
            by_thread.setdefault(identity.thread_id, []).append(row)
    return by_thread


def _read_threads(root: str) -> ReadPlan[dict[str, Thread]]:
    """Return all threads under a root by id, the latest first, each with its newest segments."""
    threads: dict[str, Thread] = {}
    for thread_id, rows in (yield from _read_rows(root)).items():
        threads[thread_id], _ = yield from read_thread(rows)
    return threads


def _read_branches(
    tops: Sequence[str], by_thread: Mapping[str, list[CheckpointTuple]]
) -> ReadPlan[dict[str, Thread]]:
    """Return all threads by id, each as far as the branch of its root has come."""
    below: dict[str, list[str]] = {}
    for thread_id, rows in by_thread.items():
        superior = str(rows[0].metadata.get("superior_thread_id", ""))
        below.setdefault(superior, []).append(thread_id)
    threads: dict[str, Thread] = {}
    # Roots are taken first; what is left at the end is below none, and a link that names it broken.
    order = sorted(by_thread, key=lambda thread_id: thread_id in tops)
    left: list[tuple[str, CheckpointTuple | None]] = [(thread_id, None) for thread_id in order]
    while left:
        thread_id, end = left.pop()
        if thread_id in threads:
            continue
        rows = by_thread[thread_id]
        end = end or list_segments(rows)[0]
        threads[thread_id], heads = yield from read_thread(rows, end)
        for called in below.get(thread_id, ()):
            rows_by_query = {_build_query(row): row for row in by_thread[called]}
            latest = list_segments(by_thread[called])[0]
            chosen = choose_branch_end(end, heads.get(called), _build_query(latest))
            left.append((called, rows_by_query.get(chosen, latest)))
    return threads


def _build_query(row: CheckpointTuple) -> OneCheckpoint:
    configurable = row.config["configurable"]
    return OneCheckpoint(
        configurable["thread_id"], configurable["checkpoint_ns"], configurable["checkpoint_id"]
    )


def read_branch_threads(root: str) -> ReadPlan[dict[str, Thread]]:
    """Return the threads under a root by id, each as far as the branch of the root has come.

    Raises:
        ThreadNotFound: The thread has never run.
    """
    by_thread = yield from _read_rows(root)
    tops = _list_tops(by_thread)
    if not tops:
        raise ThreadNotFound(root)
    threads = yield from _read_branches(tops, by_thread)
    return dict(sorted(threads.items(), key=lambda entry: entry[1].path))


def _list_tops(by_thread: Mapping[str, list[CheckpointTuple]]) -> list[str]:
    return [
        thread_id
        for thread_id, rows in by_thread.items()
        if not rows[0].metadata.get("superior_thread_id")
    ]


def _read_trace(root: str) -> ReadPlan[Trace]:
    by_thread = yield from _read_rows(root)
    tops = _list_tops(by_thread)
    if not tops:
        raise ThreadNotFound(root)
    # In a tree embedded in another graph, each run is a root of its own: show the latest.
    top = root if root in tops else tops[0]
    threads = yield from _read_branches(tops, by_thread)
    trace = build_trace(top, threads)
    if hidden := (yield from read_hidden_messages(root)):
        trace = trace.with_hidden(
            {
                thread_id: tuple(
                    str(message.id) for message in thread.messages if message.id in hidden
                )
                for thread_id, thread in threads.items()
            }
        )
    aliases: dict[str, str] = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: list_aliases_by_path(open_, root))
    )
    if aliases:
        metadata: Any = by_thread[top][0].metadata
        trace = trace.with_aliases(aliases, str(metadata["agent_path"]))
    actions: list[UserAction] = yield UserActions(root)
    if not actions:
        return trace
    branch = yield from read_latest_branch(root)
    return trace.with_user_actions(
        [action for action in actions if branch.sees(action.checkpoint_id)]
    )


def _list_started_threads(thread: Thread) -> tuple[str, ...]:
    delegations = (event.data for event in thread.events if event.kind is EventKind.DELEGATION)
    return tuple(dict.fromkeys(str(data["sub_agent_thread_id"]) for data in delegations))
