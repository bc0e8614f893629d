"""`Feature`: what agents can do or must obey beside the loop, which knows no feature's name.

A feature is bound to each agent when a tree is compiled. The loop collects the hooks that it
overrides, so a hook that is not overridden costs nothing. A hook that may block is a plan, see
`echelons.plans`: it is written once for threads and event loops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from echelons.plans import Plan
from echelons.prompts import load_tool_texts

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolCall
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from pydantic import BaseModel

    from echelons.agent import Agent
    from echelons.checkpoints.coordination.records import Records
    from echelons.checkpoints.coordination.turns import Turn
    from echelons.checkpoints.ledger import Ledger, Transaction
    from echelons.delegation.approvals import StandingDecisions
    from echelons.delegation.calls import Candidates, SubordinateCall
    from echelons.delegation.policy import DelegationPolicy
    from echelons.delegation.request import DelegationResponse, Usage
    from echelons.graphs.compiled_tree import AgentGraph
    from echelons.guards.budget import Allowance, GrantRequest
    from echelons.guards.gate import Gate, Halt, Pause, StepGuard
    from echelons.guards.permissions import RulesByName
    from echelons.guards.prices import Prices
    from echelons.identity.lineage import Identity
    from echelons.identity.thread_history import Head, Past, ThreadHistory
    from echelons.models.bound_model import BoundModel
    from echelons.models.notices import Shorten
    from echelons.nodes.attempt import Attempt, AttemptOptions, AttemptResult, LevelFailure
    from echelons.nodes.model_call import ModelAnswer, ModelInput
    from echelons.nodes.planning.relay import JoinedState
    from echelons.nodes.planning.reply_handler import ReplyContext
    from echelons.nodes.planning.tool_calls import CallableTools, ReplyCalls, ReplyScope
    from echelons.nodes.request_queue import QueuedRequest
    from echelons.nodes.tool_execution.at_most_once import Refusal
    from echelons.run_context import RunContext
    from echelons.runtime.run_events import RunEvent
    from echelons.tree.agent_registry import AgentKind
    from echelons.tree.members import Member

S = TypeVar("S")
T = TypeVar("T")


class Reach(NamedTuple):
    """How the place of an agent connects it with others.

    Attributes:
        is_candidate: Whether its answer may lead to the next candidate for a task, or has a
            contract: it has to say how its task has ended.
        has_listeners: Whether others beside it, or a superior that shows progress, read messages.
    """

    is_candidate: bool = False
    has_listeners: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An agent at its place in a tree, to which features are bound when the tree is compiled.

    Attributes:
        agent: The agent.
        model: Its model, its own or inherited, or a function that chooses it.
        can_call: Whether its model can call tools.
        reports: Whether its superior is an agent.
        policy: Its delegation policy, its own or inherited.
        siblings: Names of the agents with the same superior, its own included.
        superior_policy: The delegation policy of its superior; `None` for a root.
        reach: How it can be reached, and the receivers of its messages.
        has_budget: Whether the agent or one above it has a budget, so that it may grant a part.
    """

    agent: Agent
    model: Any
    can_call: bool
    reports: bool
    policy: DelegationPolicy
    siblings: tuple[str, ...] = ()
    superior_policy: DelegationPolicy | None = None
    reach: Reach = field(default_factory=Reach)
    has_budget: bool = False


@dataclass(frozen=True, slots=True)
class AgentStep:
    """One step of an agent: a call of its model, and what follows of the reply.

    Attributes:
        joined: The state of the level.
        past: The segments before it.
        identity: The agent.
        config: The config of the task.
        gate: Admits what the agent does.
        is_async: Whether the step runs in an event loop.
    """

    joined: JoinedState
    past: Past
    identity: Identity
    config: RunnableConfig
    gate: Gate
    is_async: bool

    @property
    def state(self) -> Mapping[str, Any]:
        """The state of the level, with the messages that hooks have added."""
        return self.joined.state

    def add_messages(self, messages: Sequence[BaseMessage]) -> AgentStep:
        """Return the step with messages that the model reads last; `Outcome.added` stores them."""
        return replace(self, joined=self.joined.add_messages(messages)) if messages else self


class Prompt(NamedTuple):
    """The prompt that a model is about to read.

    Attributes:
        system: Its instructions.
        messages: The conversation.
        tools: The tools that it is shown.
        shorten: Shows a part of each long result, with the id by which it is read on.
        metadata: Facts on the prompt for the reply's metadata, by the keys of features.
    """

    system: SystemMessage | None
    messages: list[BaseMessage]
    tools: Sequence[Any] = ()
    shorten: Shorten | None = None
    metadata: Mapping[str, Any] = {}


class ModelCall(NamedTuple):
    """One call of an agent's model.

    Attributes:
        step: The step that makes it.
        model: The model.
        input: The messages that the model reads.
        config: The config of the task, with what the model is shown of its thread.
        metadata: The entries that the reply keeps of the prompt in its metadata.
    """

    step: AgentStep
    model: BoundModel
    input: ModelInput
    config: RunnableConfig
    metadata: Mapping[str, Any] = {}


class CutReply(NamedTuple):
    """A reply that was cut off.

    Attributes:
        call: The call of the model.
        said: The text of the model so far.
    """

    call: ModelCall
    said: AIMessage


@dataclass(slots=True)
class Outcome:
    """The result of a step.

    Attributes:
        update: The update of the level.
        reply: The reply with its calls; `None` if the model was not called, or was cut off.
        halt: Why a reply must not be acted on, or why the segment ends without one.
        cut: The reply, if it was cut off.
        added: The messages that hooks have added to what the model reads, to be stored.
        updates: The updates of the state by hooks around the model, in order.
    """

    update: dict[str, Any] = field(default_factory=dict)
    reply: ReplyContext | None = None
    halt: Halt | Pause | None = None
    cut: CutReply | None = None
    added: list[BaseMessage] = field(default_factory=list)
    updates: Sequence[Mapping[str, Any]] = ()


class ToolScope(NamedTuple):
    """The objects that a call of a built-in tool may read when it runs.

    Attributes:
        config: The config of the task.
        history: Returns whether the run is stored, so that it can wait for an answer.
        read_thread: Returns the messages of the agent's thread.
        refusal: The gate's refusal to start the call; `None` if it may start.
    """

    config: RunnableConfig
    history: ThreadHistory
    read_thread: Callable[[], Plan[list[BaseMessage]]]
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class RequestField:
    """A parameter of the tools that delegate, for what a request has of a feature.

    Attributes:
        name: Its name, which is that of the request's field, too.
        kind: The type by which pydantic validates what a call gives; it may be `None`.
        store: Returns what is stored of it with the request.
        part_refusal: Why one request of a call with several may not have its own.
        schema: The schema that a model is shown; `None` if it is shown nothing.
    """

    name: str
    kind: Any
    store: Callable[[Any], Mapping[str, Any]]
    part_refusal: str
    schema: Mapping[str, Any] | None = field(default=None, compare=False)


class BuiltIn(ABC):
    """A tool that the library gives an agent.

    Attributes:
        name: Its name.
        arguments: Its arguments, by which those of a call are mended.
        is_offered: Whether a model may be shown it; threads may have calls of any other.
        is_needed: Whether a model is shown it unless its agent's `builtin_tools` names the tools.
        is_executed: Whether `act` runs its calls; others are answered when the reply is read.
        is_silent: Whether a report need not wait for its result.
        may_repeat: Whether it may be called again and again with the same result.
    """

    name: ClassVar[str]
    arguments: type[BaseModel]
    is_offered: ClassVar[bool] = True
    is_silent: ClassVar[bool] = False
    may_repeat: ClassVar[bool] = False
    is_needed: bool = True
    is_executed: bool = True

    @abstractmethod
    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it."""

    def mend_names(self, arguments: Mapping[str, Any], reply: ReplyCalls) -> dict[str, Any] | None:
        """Return the arguments of a call that names agents otherwise than they are called."""
        return None

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Take a call, before any call of its reply runs; return why it is refused, if it is."""
        if refusal := reply.take_width(1):
            return str(refusal.reason)
        if not self.is_silent:
            reply.tool_calls.append(self.name)
        return ""

    def check_whole(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Return why an accepted call is refused beside the others of its reply, if it is."""
        return ""

    def execute(self, call: ToolCall, scope: ToolScope) -> Plan[dict[str, Any]]:
        """Run a call in `act`, and return the update of the level."""
        raise NotImplementedError

    def _describe(self, properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
        """Return the schema for these parameters, with the texts of the tool."""
        texts = load_tool_texts(self.name)
        described = {
            key: {**schema, "description": texts[key]} if key in texts else schema
            for key, schema in properties.items()
        }
        parameters = {"type": "object", "properties": described, "required": required}
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": texts["description"],
                "parameters": parameters,
            },
        }


class AddedAgent(NamedTuple):
    """An added subordinate, as it is run.

    Attributes:
        agent: The agent.
        circuit: Name of the circuit breaker that it shares with others of its kind.
    """

    agent: Agent
    circuit: str


class AddedSubordinates(ABC):
    """The subordinates that were added to those of an agent, as one of its replies sees them."""

    @property
    @abstractmethod
    def callable(self) -> Collection[str]:
        """Names of those that were there before the reply, and that it may call."""

    @abstractmethod
    def find_fault(self, name: str) -> str | None:
        """Return why one cannot be called, empty if it can; `None` for a name of none of them."""

    @abstractmethod
    def add(
        self, call: ToolCall, task: str, profile: str, fields: Mapping[str, Any], reply: ReplyCalls
    ) -> str:
        """Add one after a profile, with the request of a call; return why not, if it is refused.

        `fields` are what the request has of features, see `RequestField`.
        """

    @abstractmethod
    def list_agents(self) -> tuple[Agent, ...]:
        """Return what tasks that name no subordinate are routed by."""

    @abstractmethod
    def list_beside(self, name: str) -> Sequence[str]:
        """Return names of those beside a subordinate, for its request."""

    @abstractmethod
    def list_facts(
        self, requests: Sequence[SubordinateCall], candidates: Mapping[str, Candidates]
    ) -> dict[str, dict[str, Any]]:
        """Return the stored facts of those that requests may go to, by call id and name."""

    @abstractmethod
    def count_levels(self, name: str) -> int:
        """Return the number of levels from one down; 0 for a name of none of them."""


class SubordinateSource(ABC):
    """Adds subordinates to those that an agent declares, while its tree runs.

    The loop stores the facts of one, in JSON, with each request that may go to it and in the head
    of its thread, and hands them back.

    Attributes:
        profiles: Names of the agents after which a call may add one.
    """

    profiles: Sequence[str]

    @abstractmethod
    def read(self, scope: ReplyScope, tools: CallableTools) -> AddedSubordinates:
        """Return those that a reply of the agent sees."""

    @abstractmethod
    def build(self, facts: Any, config: Mapping[str, Any]) -> AddedAgent:
        """Return one as it is run, from its facts and the config of its superior.

        The same one is returned for the same facts, so that its graph may be kept.
        """

    @abstractmethod
    def find_model(self, facts: Any, config: Mapping[str, Any]) -> Any:
        """Return its own model; `None` for that of its superior."""

    @abstractmethod
    def count_levels(self, facts: Any, config: Mapping[str, Any]) -> int:
        """Return the number of levels from one down."""

    @abstractmethod
    def keep(
        self, order: QueuedRequest, head: Head, answer: DelegationResponse | None, *, began: bool
    ) -> tuple[QueuedRequest, Head]:
        """Return a request, and the head of its thread with the facts, after an attempt.

        `answer` is that of the attempt; `None` if the request goes on in another step.
        """

    @abstractmethod
    def describe(
        self, order: QueuedRequest, answer: DelegationResponse, config: Mapping[str, Any]
    ) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Return the notices and the metadata beside an answer; `config` is the superior's."""


class AgentHooks:
    """The hooks of a feature at the steps of one agent. A subclass overrides what it needs.

    Attributes:
        tools: The tools that it gives the agent.
        request_fields: The parameters that it gives the tools with which the agent delegates.
        source: What adds subordinates to the agent; `None` for nothing.
        has_notices: Whether the agent may read notices of it, so its instructions name their mark.
    """

    tools: Sequence[BuiltIn] = ()
    request_fields: Sequence[RequestField] = ()
    source: SubordinateSource | None = None
    has_notices: bool = False

    def has_news(self, config: RunnableConfig) -> Plan[bool]:
        """Return whether the model must be called although tools have given the answer."""
        raise NotImplementedError

    def around_step(
        self, step: AgentStep, proceed: Callable[[AgentStep], Plan[Outcome]]
    ) -> Plan[Outcome]:
        """Run around a step: before its model is called, and after its reply was understood.

        What it stores with the task is committed with the update that it returns. With nothing to
        do, it returns the plan of `proceed` itself.
        """
        raise NotImplementedError

    def prepare_prompt(self, prompt: Prompt, step: AgentStep) -> Plan[Prompt]:
        """Return what the model reads at this call; the thread keeps what it has."""
        raise NotImplementedError

    def around_model(
        self, call: ModelCall, proceed: Callable[[ModelCall], Plan[ModelAnswer]]
    ) -> Plan[ModelAnswer]:
        """Run around one call of the model."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RequestPlace:
    """A subordinate at its place in a tree, to which features are bound with its superior.

    Attributes:
        member: The subordinate.
        rules: The approval rules that hold for its superior.
        decisions: The decisions of people that hold for a whole thread.
        history: Knows the segments of the subordinate that have begun.
    """

    member: Member
    rules: RulesByName
    decisions: StandingDecisions
    history: ThreadHistory


@dataclass(frozen=True, slots=True)
class AttemptStep:
    """One attempt of a request with one subordinate.

    Attributes:
        order: The request, as it is queued.
        head: The end of its thread, if it has begun.
        mark: The mark of its thread's notices, if it has one.
        config: The config of the subordinate.
        gate: Admits the attempt.
        options: The options of the attempt.
        failure: Why it must not run; `None` if it may.
        claims: The grants that it needs, which are had in the transaction that admits it.
        start: The input of the level, once it is admitted.
    """

    order: QueuedRequest
    head: Head | None
    mark: str
    config: RunnableConfig
    gate: Gate
    options: AttemptOptions
    failure: LevelFailure | None = None
    claims: Sequence[GrantRequest] = ()
    start: Mapping[str, Any] = field(default_factory=dict)


class AttemptHooks:
    """The hooks at the requests to one subordinate. A subclass overrides what it needs.

    A request may have several attempts, each a task of its own: nothing outlives one but what is
    in the head of its thread, or in records.

    Attributes:
        head_keys: The keys of what it keeps in the head; what an attempt does not keep is dropped.
    """

    head_keys: Sequence[str] = ()

    def around_request(
        self,
        order: QueuedRequest,
        config: RunnableConfig,
        proceed: Callable[[QueuedRequest], Plan[Attempt | QueuedRequest]],
    ) -> Plan[Attempt | QueuedRequest]:
        """Run around all attempts of a task, with its superior's config.

        A request in place of an attempt is run next, in a step of its own.
        """
        raise NotImplementedError

    def around_attempt(
        self, step: AttemptStep, proceed: Callable[[AttemptStep], Plan[Attempt]]
    ) -> Plan[Attempt]:
        """Run around an attempt, before it is admitted."""
        raise NotImplementedError

    def around_level(
        self, step: AttemptStep, proceed: Callable[[AttemptStep], Plan[AttemptResult]]
    ) -> Plan[AttemptResult]:
        """Run around the subordinate's level, once the attempt was admitted with its claims."""
        raise NotImplementedError


class NoteEvent(Protocol):
    """Adds an event to those of a run; any thread may call it."""

    def __call__(self, path: str, kind: str, content: str, **fields: Any) -> None:
        """Note what happened to an agent, with further fields of a `RunEvent`."""


@dataclass(frozen=True, slots=True)
class GateScope:
    """A run that enters a tree, for the guards of its gate.

    Attributes:
        agent: The root of the tree.
        identity: The identity of the root.
        thread_id: LangGraph's id of the thread.
        ledger: The ledger of the run.
        saver: Its saver; `None` for none.
        turn: Its turn; `None` outside of sessions.
        around: The context that the tree is run in.
        allowance: The allowance of the agent that runs it.
        configurable: The config of the run.
        clock: Returns the time, in seconds from any moment.
    """

    agent: Agent
    identity: Identity
    thread_id: str
    ledger: Ledger
    saver: BaseCheckpointSaver[Any] | None
    turn: Turn | None
    around: RunContext
    allowance: Allowance | None
    configurable: Mapping[str, Any]
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class RunScope:
    """A run of a session, under its lease.

    Attributes:
        graph: The compiled tree.
        saver: The saver of the run.
        turn: The turn.
        config: The config of the run.
        is_new: Whether the turn begins with it.
        note: Adds events to those of the run.
        prices: The costs of models; `None` if that is not known.
    """

    graph: AgentGraph
    saver: BaseCheckpointSaver[Any]
    turn: Turn
    config: RunnableConfig
    is_new: bool
    note: NoteEvent
    prices: Prices | None = None


class RunHooks(Protocol):
    """The hooks of a feature beside a run, which never waits for it.

    Attributes:
        needs_events: Whether it takes the events of a run that nothing else watches, too.
    """

    needs_events: bool

    def start(self) -> None:
        """Begin: the first step is about to."""

    def see(self, event: RunEvent | None) -> None:
        """Take an event of the run; `None` for a step whose events were not made."""

    def close(self) -> Usage:
        """End with the run, and return what was used; it may wait for the database."""
        ...


class Feature:
    """One thing that agents can do or must obey. A subclass overrides what it needs.

    Attributes:
        name: Its name, which is that of its folder and of its page.
        records: The kinds of records that it keeps under a root's thread.
        needs_session: Whether only sessions can run a tree that uses it, see `compile`.
    """

    name: ClassVar[str]
    records: ClassVar[Sequence[Records[Any]]] = ()
    needs_session: ClassVar[bool] = False

    def bind(self, place: Place) -> AgentHooks | None:
        """Return what it does at the steps of an agent; `None` for nothing."""
        return None

    def bind_request(self, place: RequestPlace) -> AttemptHooks | None:
        """Return what it does at the requests to a subordinate; `None` for nothing."""
        return None

    def guard(self, run: GateScope) -> StepGuard | None:
        """Return what it decides in the gate of a run; `None` for nothing."""
        return None

    def compile(
        self, root: Agent, models: Mapping[str, Any], policies: Mapping[str, DelegationPolicy]
    ) -> Any:
        """Return what it makes of a tree for `open`; something false if the tree does not use it.

        `models` and `policies` are those of all agents, by their names.
        """
        return None

    def provide(self, saver: BaseCheckpointSaver[Any], option: Any) -> Any:
        """Return what the runs of a session find by the feature's name; `None` for nothing.

        `option` is what the session was passed for the feature.
        """
        return None

    def list_members(self, made: Any) -> Mapping[str, AgentKind]:
        """Return the members that it adds to a tree, by path."""
        return {}

    def find_members(
        self, open_: Transaction, thread_id: str, turn: str
    ) -> Mapping[str, AgentKind]:
        """Return the members that have worked beside a turn, by path, as they are stored."""
        return {}

    def open(self, run: RunScope, made: Any) -> RunHooks:
        """Return what it does beside a run of a session; under the lease, before the first step."""
        raise NotImplementedError


def collect(hooks: Sequence[Any], method: str, base: type) -> tuple[Callable[..., Any], ...]:
    """Return the methods of the hooks that override one of their base class, outermost first."""
    declared = getattr(base, method)
    return tuple(
        getattr(hook, method) for hook in hooks if getattr(type(hook), method) is not declared
    )


def compose(
    wraps: Sequence[Callable[..., Plan[T]]], innermost: Callable[[S], Plan[T]]
) -> Callable[[S], Plan[T]]:
    """Return wraps around a plan, the first outermost; without wraps, the plan itself.

    Each takes a step, and as `proceed` what is within.
    """
    whole = innermost
    for wrap in reversed(wraps):
        # A closure would be one more call in each step.
        whole = partial(wrap, proceed=whole)
    return whole
