"""What each agent of a thread is doing, as its checkpoints and the ledger say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid5

from echelons.checkpoints.coordination.control_orders import ControlOrders
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.threads.thread import Thread
from echelons.checkpoints.threads.trace import Trace
from echelons.delegation.request import Status
from echelons.guards.gate import Pause
from echelons.identity.lineage import ECHELONS_NS
from echelons.messaging.agent_question import read_question_value
from echelons.messaging.mail import USER
from echelons.tree.agent_registry import AgentRecord, AgentRegistry, AgentState
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class TreeSnapshot:
    """What is known of the agents of a root's thread.

    Attributes:
        root_thread_id: LangGraph's id of the thread.
        trace: Its trace; `None` if it has never run.
        threads: The threads in it, by their ids.
        questions: The open questions.
        orders: The stops and pauses of its turn.
        finished: Whether its last turn has ended.
        running: Whether a process is at work on it.
    """

    root_thread_id: str
    trace: Trace | None = None
    threads: Mapping[str, Thread] = field(default_factory=dict)
    questions: Sequence[Question] = ()
    orders: ControlOrders = field(default_factory=ControlOrders)
    finished: bool = True
    running: bool = False

    def build_registry(self, known: Iterable[str] = ()) -> AgentRegistry:
        """Return the agents of the thread.

        Args:
            known: Paths of the tree, superiors first; agents that were called come after them.
        """
        traces: dict[str, list[Trace]] = {path: [] for path in known}
        for path, trace in _walk(self.trace, "") if self.trace else ():
            traces.setdefault(path, []).append(trace)
        below: dict[str, list[str]] = {path: [] for path in traces}
        for path in traces:
            if above := path.rpartition(PATH_SEPARATOR)[0]:
                below[above].append(path)
        roots = [path for path in traces if PATH_SEPARATOR not in path]
        ordered = [each for root in roots for each in _order(root, below)]
        return AgentRegistry(
            tuple(self._build(each, traces[each], below[each]) for each in ordered)
        )

    def _build(self, path: str, traces: Sequence[Trace], below: Iterable[str]) -> AgentRecord:
        asked = [each for each in self.questions if PATH_SEPARATOR.join(each.path) == path]
        state, whom = self._find_state(path, traces, asked)
        begun = (self.threads[each.thread_id] for each in traces if each.thread_id in self.threads)
        above = path.rpartition(PATH_SEPARATOR)[0]
        return AgentRecord(
            id=self._derive_id(path),
            path=path,
            superior_id=self._derive_id(above) if above else "",
            subordinate_ids=tuple(map(self._derive_id, below)),
            thread_ids=tuple(each.thread_id for each in traces),
            since=min((each.begun_at for each in begun), default=""),
            state=state,
            waiting_for=whom,
            question=" ".join(str(read_question_value(asked[0].value)).split()) if asked else "",
        )

    def _find_state(
        self, path: str, traces: Sequence[Trace], asked: Sequence[Question]
    ) -> tuple[AgentState, tuple[str, ...]]:
        """Return the state of an agent, the first that fits any of its threads, and for whom it waits."""
        working = [each for each in traces if self._is_open(each)]
        if working and isinstance(self.orders.find_order(path), Pause):
            return AgentState.PAUSED, ()
        whom = [each.addressee or USER for each in asked]
        for each in working:
            whom += [
                f"{path}{PATH_SEPARATOR}{one.agent}"
                for one in each.subordinates
                if self._is_open(one)
            ]
        if any(each.status == Status.NEEDS_INPUT for each in traces):
            whom.append(path.rpartition(PATH_SEPARATOR)[0])
        if whom:
            return AgentState.WAITING, tuple(dict.fromkeys(whom))
        if working:
            return AgentState.WORKING if self.running else AgentState.IDLE, ()
        if any(each.status == Status.UNABLE for each in traces):
            return AgentState.FAILED, ()
        return AgentState.DONE if traces else AgentState.IDLE, ()

    def _is_open(self, trace: Trace) -> bool:
        """Return whether an agent has a request without an answer; the root, an unfinished turn."""
        if not trace.superior_thread_id:
            return not self.finished
        return trace.status == "open" and not self.finished

    def _derive_id(self, path: str) -> str:
        return str(uuid5(ECHELONS_NS, f"agent/{self.root_thread_id}/{path}"))


def _walk(trace: Trace, above: str) -> Iterator[tuple[str, Trace]]:
    path = f"{above}{PATH_SEPARATOR}{trace.agent}" if above else trace.agent
    yield path, trace
    for each in trace.subordinates:
        yield from _walk(each, path)


def _order(path: str, below: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield path
    for each in below[path]:
        yield from _order(each, below)
