"""The work that a stored run has left, found by walking down its open tasks.

Works on any saver and needs no graph, so it also finds agents that the tree does not have any
more, and agents that LangGraph's own inspection does not show. Answers are checked against the
questions found here; the check before a resume reads the unfinished agents. Both are plans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED, TASKS
from langgraph.constants import START
from langgraph.types import Interrupt

from echelons.checkpoints.clock import utc_now
from echelons.checkpoints.coordination.candidates import plan_has_lost
from echelons.checkpoints.coordination.dismissal_ledger import read_dismissals
from echelons.checkpoints.coordination.orders import ControlOrders, read_orders
from echelons.checkpoints.delta_channels import MESSAGES
from echelons.checkpoints.queries import AllCheckpoints, LedgerQuery, OneCheckpoint, ReadPlan
from echelons.checkpoints.run_config import (
    SEPARATOR,
    build_child_namespace,
    get_namespace_depth,
    split_namespace,
)
from echelons.delegation.approvals import ReviewedCall, find_review
from echelons.delegation.calls import is_response_message
from echelons.delegation.join import RaceEntry
from echelons.delegation.questions import read_question_value
from echelons.guards.dismissals import Dismissal
from echelons.guards.gate import PAUSE_KEY, Halt, is_pause
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import BRANCH_PREFIX, NULL_TASK_ID, compute_task_id
from echelons.tree.agent_path import AgentPath

OPEN_TASK_CHANNELS = frozenset({ERROR, INTERRUPT, RESUME, SCHEDULED})
"""Channels of writes that do not complete a task."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that an agent has asked the user.

    Attributes:
        id: Id of the interrupt, which an answer names.
        value: The question.
        path: Names from the root to the asking agent.
        thread_id: The asking agent's thread.
        asked_at: Time of the checkpoint at which it waits, ISO 8601, UTC.
        schema: JSON Schema of the answer; `None` if any value will do, or if it is about tool
            calls and takes a `Decision` on each.
        choices: The answers that it takes, if the agent has asked with choices.
        urgent: Whether it comes first in the inbox.
        deadline: Until when an answer is of use, ISO 8601, UTC; `None` for any time.
        default: The answer that is taken when its deadline passes; `None` if it has none.
        addressee: Name of the human that it is for; empty for anyone.
        asker: Name of the asking agent.
    """

    __stored_as__ = "echelons.checkpoints.pending.Question"

    id: str
    value: Any
    path: AgentPath
    thread_id: str
    asked_at: str
    schema: Mapping[str, Any] | None = None
    choices: tuple[str, ...] = ()
    urgent: bool = False
    deadline: str | None = None
    default: Any = None
    addressee: str = ""
    asker: str = ""

    def __post_init__(self) -> None:
        # Stored as an object, its tuples come back as lists.
        object.__setattr__(self, "path", AgentPath(self.path))
        object.__setattr__(self, "choices", tuple(self.choices))

    @property
    def age(self) -> timedelta:
        """How long it has been waiting."""
        return max(utc_now() - datetime.fromisoformat(self.asked_at), timedelta())

    @property
    def reviewed_calls(self) -> tuple[ReviewedCall, ...]:
        """The tool calls that wait for a `Decision`; none if it asks something else."""
        review = find_review(self.value, self.schema)
        return review.calls if review else ()


@dataclass(frozen=True, slots=True)
class OpenAgent:
    """An agent of a stored run that has work left.

    Attributes:
        path: Names from the root.
        nodes: Nodes of its level, or of its delegation graph, that have not done their work.
        subordinates: Names of the subordinates whose answers it waits for.
        spawned: The specifications of those among them that were made at run time, by name.
    """

    path: tuple[str, ...]
    nodes: tuple[str, ...]
    subordinates: tuple[str, ...]
    spawned: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PendingWork:
    """The work that a stored run has to do or to wait for before it ends.

    Attributes:
        questions: Its pending questions, the urgent ones first, in the order of the tree.
        can_proceed: Whether it has work left that waits for no answer; paused work counts.
        withdrawn: Ids of the questions of agents that were stopped or dismissed.
        dismissed: The dismissals for which questions are withdrawn, by the ids of these.
        paused: Paths of the pauses that hold its agents.
        requested: Paths of the subordinates that wait for the approval of their task, by the id
            of the question. It is asked for their superior, and withdrawn when they are stopped.
    """

    questions: tuple[Question, ...] = ()
    can_proceed: bool = False
    withdrawn: frozenset[str] = frozenset()
    dismissed: Mapping[str, Dismissal] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    requested: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_pending_work(root: CheckpointTuple, thread_id: str) -> ReadPlan[PendingWork]:
    """Return the pending work of a root's thread at a checkpoint of the root."""
    work = yield from _walk_open_tasks(root, thread_id)
    if any(question.urgent for question in work.questions):
        work = replace(work, questions=sort_questions(work.questions))
    identity = Identity.from_metadata(root.metadata)
    if identity is None or not work.questions:
        return work
    # The questions of stopped and dismissed agents are withdrawn.
    turn = identity.turn
    orders: ControlOrders = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: read_orders(open_, thread_id, turn))
    )
    dismissals = yield from read_dismissals(thread_id, root.checkpoint["id"])
    left: list[Question] = []
    dismissed: dict[str, Dismissal] = {}
    for question in work.questions:
        path = AgentPath(work.requested.get(question.id, question.path))
        dismissal = dismissals.find(path)
        # Who finishes its request may still ask, but begins no other.
        if dismissal and not (dismissal.graceful and question.id not in work.requested):
            dismissed[question.id] = dismissal
        elif not isinstance(orders.find_order(path), Halt):
            left.append(question)
    withdrawn = {question.id for question in work.questions}.difference(
        question.id for question in left
    )
    return replace(
        work,
        questions=tuple(left),
        can_proceed=work.can_proceed or bool(withdrawn),
        withdrawn=frozenset(withdrawn),
        dismissed=dismissed,
    )


def sort_questions(questions: Iterable[Question]) -> tuple[Question, ...]:
    """Return questions in their order, but the urgent ones first."""
    return tuple(sorted(questions, key=lambda question: not question.urgent))


def _walk_open_tasks(level: CheckpointTuple, thread_id: str) -> ReadPlan[PendingWork]:
    tasks = _OpenTasks.from_checkpoint(level)
    questions: list[Question] = []
    paused: set[str] = set()
    requested: dict[str, tuple[str, ...]] = {}
    moves = tasks.has_unstarted
    for task_id, nodes in tasks.unfinished.items():
        # An interrupt is copied into every level above when all work there has ended, and stays
        # there while the asking agent goes on: only the innermost task knows of its question.
        inner = yield from _find_inner_graph(task_id, level, nodes, thread_id)
        if inner and (yield from _has_lost_race(inner, thread_id)):
            # The asking agent learns that its race is over when the run goes on.
            moves = True
            continue
        below = (yield from _walk_open_tasks(inner, thread_id)) if inner else PendingWork()
        interrupts = tasks.interrupted.get(task_id, ())
        waiting = [
            interrupt
            for interrupt in interrupts
            if tasks.waits_for(task_id, interrupt.id, bool(inner))
        ]
        asking = [interrupt for interrupt in waiting if not is_pause(interrupt.value)]
        held = {
            str(interrupt.value[PAUSE_KEY]) for interrupt in waiting if is_pause(interrupt.value)
        }
        questions += [
            *below.questions,
            *(_build_question(level, interrupt) for interrupt in asking),
        ]
        paused |= below.paused | held
        requested |= below.requested
        if asking and (path := _find_requested_path(level)):
            requested |= {interrupt.id: path for interrupt in asking}
        moves = moves or below.can_proceed or bool(held) or not (below.questions or waiting)
    return PendingWork(tuple(questions), moves, paused=frozenset(paused), requested=requested)


def _find_requested_path(level: CheckpointTuple) -> tuple[str, ...]:
    """Return the path of the subordinate whose request a delegation is at; empty if at none."""
    identity = Identity.from_metadata(level.metadata)
    match level.checkpoint["channel_values"].get("queue"):
        case [{"request": {"current": str(current)}}, *_] if identity:
            return (*identity.path, current)
    return ()


def _has_lost_race(saved: CheckpointTuple, thread_id: str) -> ReadPlan[bool]:
    """Return whether a delegation is part of a race that others have already won."""
    identity = Identity.from_metadata(saved.metadata)
    queue = saved.checkpoint["channel_values"].get("queue")
    first = queue[0] if queue else None
    if identity is None or not isinstance(first, Mapping) or "part" not in first:
        return False
    return (yield from plan_has_lost(thread_id, identity.turn, RaceEntry.load(first["part"])))


def _find_inner_graph(
    task_id: str, level: CheckpointTuple, nodes: Collection[str], thread_id: str
) -> ReadPlan[CheckpointTuple | None]:
    """Return the latest checkpoint of the graph that a task runs, if it runs one."""
    for node in nodes:
        namespace = build_child_namespace(_get_namespace(level), node, task_id)
        inner = yield OneCheckpoint(thread_id, namespace)
        if inner is not None:
            return inner  # type: ignore[no-any-return]  # a plan is sent what it asked for
    return None


@dataclass(frozen=True, slots=True)
class _OpenTasks:
    """The open tasks of a checkpoint's next step.

    Attributes:
        namespace: The namespace of the checkpoint.
        nodes: The nodes of the step.
        interrupted: The interrupts of each interrupted task, by its id.
        answers: The number of answers that each task has taken.
        has_unstarted: Whether tasks have neither ended nor asked, at work or not.
        unfinished: The nodes that each interrupted or unstarted task may run, by its id.
    """

    namespace: str
    nodes: tuple[str, ...]
    interrupted: Mapping[str, Collection[Interrupt]]
    answers: Mapping[str, int]
    has_unstarted: bool
    unfinished: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_checkpoint(cls, saved: CheckpointTuple) -> _OpenTasks:
        values = saved.checkpoint["channel_values"]
        nodes = list_triggered_nodes(values)
        writes = [write for write in saved.pending_writes or () if write[0] != NULL_TASK_ID]
        ended = {task for task, channel, _ in writes if channel not in OPEN_TASK_CHANNELS}
        interrupts = {task: value for task, channel, value in writes if channel == INTERRUPT}
        interrupted = {task: value for task, value in interrupts.items() if task not in ended}
        answers = {task: len(value) for task, channel, value in writes if channel == RESUME}
        untouched = len(nodes) + (START in values) > len(ended) + len(interrupted)
        unique = tuple(dict.fromkeys(nodes))
        unfinished = dict.fromkeys(interrupted, unique)
        if untouched:
            computed = {task: (node,) for task, node in _iter_next_tasks(saved)}
            unfinished = {**computed, **unfinished}
            unfinished = {task: names for task, names in unfinished.items() if task not in ended}
        return cls(_get_namespace(saved), unique, interrupted, answers, untouched, unfinished)

    def waits_for(self, task_id: str, question: str, runs_a_graph: bool) -> bool:
        """Return whether a task itself waits for the answer to a question."""
        answered = self.answers.get(task_id, 0)
        if runs_a_graph:
            return question in self._build_question_ids(task_id, answered)
        return all(
            question not in self._build_question_ids(task_id, number) for number in range(answered)
        )

    def _build_question_ids(self, task_id: str, answered: int) -> set[str]:
        # LangGraph derives the id of a question from the task and the number of its answers.
        tasks = [build_child_namespace(self.namespace, node, task_id) for node in self.nodes]
        suffix = f"{SEPARATOR}{answered}" if answered else ""
        return {Interrupt.from_ns(None, task + suffix).id for task in tasks}


def _build_question(level: CheckpointTuple, interrupt: Interrupt) -> Question:
    identity, schema = Identity.from_metadata(level.metadata), interrupt.response_schema
    path = identity.path if identity else ()
    question = Question(
        id=interrupt.id,
        value=interrupt.value,
        path=AgentPath(path),
        thread_id=identity.thread_id if identity else "",
        asked_at=level.checkpoint["ts"],
        schema=schema if isinstance(schema, Mapping) else None,
        asker=path[-1] if path else "",
    )
    details = read_question_value(interrupt.value)
    if details is None:
        return question
    # A human is asked by its superior, and on the human's own thread.
    *superiors, agent = path or ("",)
    return replace(
        question,
        asker=superiors[-1] if superiors and agent == details.addressee else agent,
        value=details.text,
        choices=details.choices,
        urgent=details.urgent,
        deadline=details.deadline,
        default=details.default,
        addressee=details.addressee,
    )


def is_finished(root: OneCheckpoint) -> ReadPlan[bool]:
    """Return whether a root has no work left; true if it has never run."""
    saved = yield root
    return saved is None or not has_work_left(saved)


def has_work_left(saved: CheckpointTuple) -> bool:
    """Return whether a graph has work left after a checkpoint."""
    values = saved.checkpoint["channel_values"]
    triggered = any(channel == START or channel.startswith(BRANCH_PREFIX) for channel in values)
    return triggered or bool(values.get(TASKS))


def find_unfinished_agents(root: OneCheckpoint) -> ReadPlan[list[OpenAgent]]:
    """Return the agents under a root that have work left, superiors first.

    Reads every checkpoint of the thread; used only when the tree has changed.

    Args:
        root: The root's checkpoint; its namespace is empty unless the tree is embedded.
    """
    listed: list[CheckpointTuple] = yield AllCheckpoints(root.thread_id)
    latest: dict[str, CheckpointTuple] = {}
    for saved in listed:
        latest.setdefault(_get_namespace(saved), saved)
    open_ones = [
        saved
        for name, saved in latest.items()
        if name.startswith(root.checkpoint_ns) and _is_open_namespace(name, latest)
    ]
    open_ones.sort(key=lambda saved: get_namespace_depth(_get_namespace(saved)))
    answered = frozenset(chain.from_iterable(map(_list_answered_requests, latest.values())))
    return [agent for saved in open_ones if (agent := build_open_agent(saved, answered))]


def build_open_agent(saved: CheckpointTuple, answered: Collection[str]) -> OpenAgent | None:
    """Return the work left at a checkpoint, or `None` if it is not of an agent.

    Args:
        saved: The checkpoint.
        answered: Ids of answered requests, whose sends are done.
    """
    identity = Identity.from_metadata(saved.metadata)
    if identity is None:
        return None
    values = saved.checkpoint["channel_values"]
    # A delegation that has not begun names its subordinates only in its superior's send. The
    # sends of finished delegations stay there until the whole step has ended.
    sent = (send.arg for send in values.get(TASKS) or () if isinstance(send.arg, Mapping))
    orders = [
        order
        for state in (values, *sent)
        for name in ("queue", "waiting")
        for order in state.get(name) or ()
    ]
    requests = [order["request"] for order in orders]
    return OpenAgent(
        identity.path,
        tuple(dict.fromkeys(list_triggered_nodes(values))),
        tuple(
            dict.fromkeys(
                request["current"] for request in requests if request["id"] not in answered
            )
        ),
        {name: spec for order in orders for name, spec in (order.get("spawned") or {}).items()},
    )


def list_triggered_nodes(values: Mapping[str, Any]) -> list[str]:
    """Return the node of each task of the next step."""
    begun = [key.removeprefix(BRANCH_PREFIX) for key in values if key.startswith(BRANCH_PREFIX)]
    return [*(send.node for send in values.get(TASKS) or ()), *begun]


def _iter_next_tasks(saved: CheckpointTuple) -> Iterator[tuple[str, str]]:
    """Yield the id and the node of each task of the next step, in the order of the tree.

    The id of a node that several channels trigger, as in a foreign graph, is another one.
    """
    values = saved.checkpoint["channel_values"]
    for place, send in enumerate(values.get(TASKS) or ()):
        yield compute_task_id(saved, send.node, place), send.node
    for key in values:
        if key.startswith(BRANCH_PREFIX):
            node = key.removeprefix(BRANCH_PREFIX)
            yield compute_task_id(saved, node), node


def _list_answered_requests(saved: CheckpointTuple) -> Iterator[str]:
    """Yield the ids of the requests that a delegation has answered, or the step after a state."""
    values = saved.checkpoint["channel_values"]
    # The last answers of a delegation are in the writes of its superior.
    written = list(values.items()) if "queue" in values else []
    written += [write[1:] for write in saved.pending_writes or ()]
    for channel, value in written:
        if channel == "parts" and isinstance(value, Mapping):
            yield from value
        elif channel == MESSAGES and isinstance(value, list):
            for message in value:
                answers = isinstance(message, ToolMessage) and is_response_message(message)
                if answers and isinstance(message.artifact, Mapping):
                    yield message.artifact.get("request_id", "")


def _is_open_namespace(namespace: str, latest: Mapping[str, CheckpointTuple]) -> bool:
    """Return whether each task on the way down to a namespace is current and not done."""
    parts = split_namespace(namespace)
    for place, part in enumerate(parts):
        outer = latest.get(SEPARATOR.join(parts[:place]))
        here = latest.get(SEPARATOR.join(parts[: place + 1]))
        if outer is None or here is None:
            return False
        started_from = (here.metadata.get("parents") or {}).get(_get_namespace(outer))
        writes = outer.pending_writes or ()
        ended = {task for task, channel, _ in writes if channel not in OPEN_TASK_CHANNELS}
        if started_from != outer.checkpoint["id"] or part.rpartition(":")[2] in ended:
            return False
    return True


def _get_namespace(saved: CheckpointTuple) -> str:
    return str(saved.config["configurable"]["checkpoint_ns"])
