"""The checks before a run of a tree: its input, and what it would resume.

The input is validated before anything is stored: it may have human messages, and the history that a
caller without a checkpointer sends along; each message gets a new id, so that none replaces an
earlier one. A tree embedded in another graph gets that graph's own state, validated already.

A tree must still have the agents that a stored run waits in: LangGraph itself ends such a run
silently, with empty answers. A different fingerprint only triggers the comparison; a changed prompt
or a new document passes. The checkpoint that a run is to begin from must exist: LangGraph begins
from nothing, and what it stores leads nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Self
from uuid import UUID, uuid4

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import Command, Overwrite

from echelons.agent import Agent
from echelons.checkpoints.coordination.dismissal_ledger import (
    list_dismissal_keys,
    read_hidden_dismissals,
)
from echelons.checkpoints.coordination.gate import TreeGate
from echelons.checkpoints.coordination.records import get_root_checkpoint
from echelons.checkpoints.coordination.repairs import list_repair_keys, read_hidden_messages
from echelons.checkpoints.delta_channels import MESSAGES, convert_messages, normalize_messages
from echelons.checkpoints.ledger import Transaction, get_ledger
from echelons.checkpoints.queries import (
    OneCheckpoint,
    ReadPlan,
    Saver,
    arun_plan,
    check_named_checkpoints,
    list_named_checkpoints,
    run_plan,
)
from echelons.checkpoints.run_config import get_saver, is_embedded, is_resuming
from echelons.checkpoints.threads.answer_outbox import add_missed_answers
from echelons.checkpoints.threads.pending_work import (
    OPEN_TASK_CHANNELS,
    OpenAgent,
    build_open_agent,
    find_unfinished_agents,
)
from echelons.delegation.spawned_agents import NOTHING_SPAWNABLE, SpawnableAgent, get_spawnable
from echelons.errors import (
    InvalidInput,
    MissingAgents,
    checkpoint_below_root,
    checkpoint_not_found,
    input_too_large,
    invalid_id,
    invalid_messages,
    invalid_option,
    missing_profile,
    missing_tool,
)
from echelons.identity.lineage import Identity, strip_own_metadata
from echelons.langgraph_internals import PRIVATE_PREFIX, STREAM_EVENTS_KEY
from echelons.nodes.request_queue import DISPATCH, REFUSE
from echelons.nodes.subordinate import assign_nodes
from echelons.run_context import CONTEXT_KEY
from echelons.text.content_blocks import measure_blocks
from echelons.text.error_lines import remember_secrets
from echelons.text.input_limits import (
    INPUT_BYTES,
    MESSAGE_BYTES,
    check_id,
    check_label,
    measure_size,
    refuse_unreadable,
    shorten_repr,
)
from echelons.tree.members import Member, fingerprint_tree, walk_tree
from echelons.tree.names import PATH_SEPARATOR, RUN, get_provider_tool_name, get_shown_tool_name
from echelons.tree.permission_rules import get_permissions

_PLAIN = (str, int, float, list, tuple, dict)
ALLOWED_ROLES = ("user", "assistant", "tool")
"""Message roles that are accepted, as providers call them."""


def validate_input(input: Any, config: RunnableConfig | None) -> Any:
    """Return the validated input of a run; `None` and commands have no messages."""
    configurable = (config or {}).get("configurable") or {}
    embedded = is_embedded(configurable)
    if not embedded:
        with refuse_unreadable(
            lambda why: invalid_option("configurable", shorten_repr(configurable), why)
        ):
            _check_configurable(configurable)
            remember_secrets(configurable)
    if input is None or issubclass(type(input), Command):
        return input
    if embedded:
        return normalize_messages(input)
    if configurable.get("thread_id") is not None:
        check_id(configurable["thread_id"], "thread_id")
    with refuse_unreadable(lambda why: invalid_messages(input, why)):
        messages = input.get(MESSAGES) if isinstance(input, Mapping) else None
        if messages is None:
            raise invalid_messages(input, "the input is no mapping with the key 'messages'")
        if isinstance(messages, Overwrite):
            raise invalid_messages(messages, "an input adds to the conversation")
        return {MESSAGES: validate_messages(convert_messages(messages))}


def _check_configurable(configurable: Mapping[str, Any]) -> None:
    for key, value in configurable.items():
        # LangGraph's server passes objects under names of LangGraph's.
        if key[:2] == "__" and (
            key.startswith(CONTEXT_KEY)
            or (
                (key.startswith(PRIVATE_PREFIX) and isinstance(value, _PLAIN))
                and (key, value) != (STREAM_EVENTS_KEY, True)
            )
        ):
            why = "names that begin like this are LangGraph's and ours; choose another"
            raise invalid_option("configurable", shorten_repr(key), why)
        # LangGraph's own savers store both with each checkpoint, and fail at half a character.
        for text in (key, value):
            if isinstance(text, str) and not text.isascii():
                measure_size(text, "configurable", 4 * len(text))
    for name in ("assistant_id", "graph_id"):
        # LangGraph takes their texts at the start of a run, whatever they are.
        if not isinstance(identifier := configurable.get(name), str | int | UUID | None):
            why = "an id is a text or a UUID; give one, or leave it out"
            raise invalid_option("configurable", f"{name}={shorten_repr(identifier)}", why)
    for name in ("thread_id", "assistant_id", "graph_id"):
        # Both are read of each, here where what they raise is named.
        str(configurable.get(name) or "")
    namespace, checkpoint_id = map(configurable.get, ("checkpoint_ns", "checkpoint_id"))
    if type(namespace) not in (str, type(None)):
        why = "a namespace of LangGraph's is a text; leave it out for the root's"
        raise invalid_option("configurable", f"checkpoint_ns={shorten_repr(namespace)}", why)
    if type(checkpoint_id) not in (str, type(None)):
        thread_id = str(configurable.get("thread_id"))
        raise checkpoint_not_found(checkpoint_id, thread_id, namespace or "")


def validate_messages(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return validated messages with new ids, ready to be stored."""
    calls: set[str | None] = set()
    size = 0
    for place, message in enumerate(messages, start=1):
        what = f"message {place} of the input"
        if not isinstance(message, (HumanMessage, AIMessage, ToolMessage)):
            role = message.role if isinstance(message, ChatMessage) else message.type
            raise InvalidInput(
                "{what} has the role {role!r}; an input may hold {allowed}. Instructions belong in "
                "Agent(prompt=...), and a history is changed with update_state",
                code="forbidden_role",
                what=what,
                role=role,
                allowed=tuple(ALLOWED_ROLES),
            )
        if isinstance(message, ToolMessage) and message.tool_call_id not in calls:
            raise InvalidInput(
                "{what} answers the call {call}, which stands in no message before it; send the "
                "message of the call too, or leave the answer out",
                code="answer_without_call",
                what=what,
                call=shorten_repr(message.tool_call_id),
            )
        for block in message.content if isinstance(message.content, list) else ():
            # LangChain looks the type up, and would fail at every later turn of the thread.
            if isinstance(block, Mapping) and not isinstance(block.get("type", ""), str):
                raise invalid_messages(block, f"the type of a block in {what} is no text")
        if message.name:
            check_label(message.name, f"name of the sender of {what}")
        if isinstance(message, AIMessage):
            calls |= {
                accepted["id"] for accepted in (*message.tool_calls, *message.invalid_tool_calls)
            }
        size += _measure_message(message, what)
        if size > INPUT_BYTES:
            raise input_too_large("the input", size, INPUT_BYTES)
    # Our own metadata, such as the threads of calls, must not come from outside.
    return [
        accepted.model_copy(
            update={"id": str(uuid4()), "response_metadata": strip_own_metadata(accepted)}
        )
        for accepted in messages
    ]


def _measure_message(message: BaseMessage, what: str) -> int:
    held = {**vars(message), **(message.__pydantic_extra__ or {})}
    artifact = held.pop("artifact", None)
    # An artifact may be any object; whether it can be stored, the saver decides.
    if artifact is not None:
        try:
            measure_size(artifact, what, MESSAGE_BYTES)
        except InvalidInput as error:
            if error.code != "invalid_value":
                raise
    size = measure_blocks(held.pop("content"), what) if isinstance(message.content, list) else 0
    return size + measure_size(held, what, MESSAGE_BYTES)


class Resumption(NamedTuple):
    """A run that may resume a thread: the identity of the stored run, and the run's input."""

    # `None` if it resumes none, or nothing is stored.
    identity: Identity | None
    # With what is delivered after a deadline.
    input: Any


def check_resume(agent: Agent, saver: Any, input: Any, config: Mapping[str, Any]) -> Resumption:
    """Check that a tree can resume a thread, if an input does, or a config names a checkpoint."""
    planned = _plan_check(agent, saver, input, config)
    return run_plan(*planned) if planned else Resumption(None, input)


async def acheck_resume(
    agent: Agent, saver: Any, input: Any, config: Mapping[str, Any]
) -> Resumption:
    """Async version of `check_resume`."""
    planned = _plan_check(agent, saver, input, config)
    return await arun_plan(*planned) if planned else Resumption(None, input)


class Hidden(NamedTuple):
    """The parts of its thread that a run does not see."""

    # The keys of the dismissals of other branches.
    dismissals: frozenset[str] = frozenset()
    # The ids of the messages that a repair hides from its models.
    messages: frozenset[str] = frozenset()

    @classmethod
    def read(cls, thread_id: str, begin: str | None) -> ReadPlan[Self]:
        """Return what a run does not see that begins from a checkpoint, or from the latest."""
        messages = yield from read_hidden_messages(thread_id, begin)
        return cls((yield from read_hidden_dismissals(thread_id, begin)), messages)

    def add_to(self, gate: TreeGate) -> None:
        """Let the gate of the run not see it."""
        if guard := gate.guards.get("dismissal"):
            guard.hidden |= self.dismissals
        gate.hidden_messages |= self.messages


NOTHING_HIDDEN: Final = Hidden()


def find_hidden(graph_saver: Any, config: Mapping[str, Any]) -> Hidden:
    """Return what a run does not see of its thread."""
    saver, thread_id, begin = _find_begin(graph_saver, config)
    if saver is None or not get_ledger(saver).query(partial(_list_keys, thread_id=thread_id)):
        return Hidden()
    return run_plan(saver, Hidden.read(thread_id, begin))


async def afind_hidden(graph_saver: Any, config: Mapping[str, Any]) -> Hidden:
    """Async version of `find_hidden`."""
    saver, thread_id, begin = _find_begin(graph_saver, config)
    if saver is None:
        return Hidden()
    ledger, list_keys = get_ledger(saver), partial(_list_keys, thread_id=thread_id)
    if not await ledger.arun(partial(ledger.query, list_keys)):
        return Hidden()
    return await arun_plan(saver, Hidden.read(thread_id, begin))


def _list_keys(open_: Transaction, thread_id: str) -> list[str]:
    return [*list_dismissal_keys(open_, thread_id), *list_repair_keys(open_, thread_id)]


def _find_saver(graph_saver: Any, configurable: Mapping[str, Any]) -> Saver | None:
    return get_saver(configurable) or (
        graph_saver if isinstance(graph_saver, BaseCheckpointSaver) else None
    )


def _find_begin(
    graph_saver: Any, config: Mapping[str, Any]
) -> tuple[Saver | None, str, str | None]:
    """Return the saver of a run, its thread, and the checkpoint that it begins from, if named."""
    configurable = config.get("configurable") or {}
    saver = _find_saver(graph_saver, configurable)
    begin = configurable.get("checkpoint_id")
    if is_embedded(configurable):
        begin = get_root_checkpoint(configurable)
    return saver, str(configurable.get("thread_id")), begin or None


def _plan_check(
    agent: Agent, graph_saver: Any, input: Any, config: Mapping[str, Any]
) -> tuple[Saver, ReadPlan[Resumption]] | None:
    """Return the saver and the plan of the check, if there is anything to check."""
    configurable = config.get("configurable") or {}
    saver = _find_saver(graph_saver, configurable)
    if saver is None:
        return None
    if configurable.get("thread_id") is None:
        raise invalid_id("thread_id", "None")
    resumes = input is None or isinstance(input, Command) or is_resuming(configurable)
    named = () if is_embedded(configurable) else list_named_checkpoints(configurable)
    if not resumes and not named:
        return None
    namespace = str(configurable.get("checkpoint_ns") or "")
    checkpoint_id = configurable.get("checkpoint_id") or None
    root = OneCheckpoint(str(configurable["thread_id"]), namespace, checkpoint_id)

    def check() -> ReadPlan[Resumption]:
        yield from check_named_checkpoints(named)
        if any(saved.checkpoint_ns for saved in named):
            yield from _refuse_replay(named)
        if not resumes:
            return Resumption(None, input)
        head: CheckpointTuple | None = yield root
        identity = yield from _check_head(agent, root, head, get_spawnable(config))
        if head is None or checkpoint_id or is_embedded(configurable):
            return Resumption(identity, input)
        return Resumption(identity, (yield from add_missed_answers(input, head)))

    return saver, check()


def _refuse_replay(named: Sequence[OneCheckpoint]) -> ReadPlan[None]:
    """Refuse a run from a subordinate's checkpoint that would repeat what has been done.

    LangGraph replays each step above it with all its tasks, also those that have ended.

    Raises:
        ThreadError: A task of one of them has ended.
    """
    for place in named:
        saved: CheckpointTuple = yield place
        if any(write[1] not in OPEN_TASK_CHANNELS for write in saved.pending_writes or ()):
            begins = {begin.checkpoint_ns: str(begin.checkpoint_id) for begin in named}
            raise checkpoint_below_root(max(begins, key=len), begins.get("", ""))


def check_checkpoint(
    agent: Agent,
    root: OneCheckpoint,
    spawnable: Mapping[str, SpawnableAgent] = NOTHING_SPAWNABLE,
) -> ReadPlan[Identity | None]:
    """Check that a tree can go on from a root's checkpoint; return the identity stored in it."""
    head: CheckpointTuple | None = yield root
    return (yield from _check_head(agent, root, head, spawnable))


def _check_head(
    agent: Agent,
    root: OneCheckpoint,
    head: CheckpointTuple | None,
    spawnable: Mapping[str, SpawnableAgent],
) -> ReadPlan[Identity | None]:
    identity = Identity.from_metadata(head.metadata) if head else None
    if head is None or identity is None:
        return identity
    if identity.tree == fingerprint_tree(agent) and not (spawnable or _may_copy(agent)):
        return identity
    latest = yield replace(root, checkpoint_id=None)
    if latest.checkpoint["id"] == head.checkpoint["id"]:
        waiting = yield from find_unfinished_agents(root)
    else:
        # A fork of an old checkpoint begins with what it had sent, whatever came later.
        waiting = [opened for opened in (build_open_agent(head, ()),) if opened]
    lost = find_missing_agents(agent, waiting, identity.path[:-1], spawnable)
    if lost:
        raise MissingAgents(
            "thread {thread!r} waits in {missing}, which this tree does not have; resume it with "
            "the tree that started it, or start another thread. Nothing was changed",
            thread=identity.thread_name or root.thread_id,
            missing=tuple(lost),
        )
    _check_spawned(agent, waiting, identity.path[:-1], spawnable)
    return identity


def _may_copy(root: Agent) -> bool:
    """Return whether an agent of a tree may make copies of profiles, which are no part of it."""
    rules = (get_permissions(place.member).spawn for place in walk_tree(root))
    return any(spawn and spawn.profiles for spawn in rules)


def _check_spawned(
    root: Agent,
    waiting: Iterable[OpenAgent],
    superiors: tuple[str, ...],
    spawnable: Mapping[str, SpawnableAgent],
) -> None:
    """Check that the spawned agents that a run waits in can be made again.

    Raises:
        MissingAgents: A tool or a profile of one is not declared.
    """
    members = {(*superiors, *place.path): place.member for place in walk_tree(root)}
    tools = {path: _list_tool_names(member) for path, member in members.items()}
    for agent in waiting:
        for name, spec in agent.spawned.items():
            # A damaged specification is reported by the step that needs it.
            if not isinstance(spec, Mapping) or agent.path not in tools:
                continue
            names = [str(tool) for tool in spec.get("tools") or ()]
            if profile := str(spec.get("profile") or ""):
                if profile not in spawnable:
                    raise missing_profile(name, profile)
                names = [*_list_tool_names(spawnable[profile].member)]
            elif missing := [tool for tool in names if tool not in tools[agent.path]]:
                raise missing_tool(name, missing)
            tools[(*agent.path, name)] = {*names}


def _list_tool_names(member: Member) -> set[str]:
    return set(map(get_shown_tool_name, getattr(member, "tools", ())))


def find_missing_agents(
    root: Agent,
    waiting: Iterable[OpenAgent],
    superiors: tuple[str, ...] = (),
    spawnable: Mapping[str, SpawnableAgent] = NOTHING_SPAWNABLE,
) -> list[str]:
    """Return the paths of the agents and nodes with pending work that the tree lacks."""
    members = {(*superiors, *place.path): place.member for place in walk_tree(root)}
    lost: dict[str, None] = {}
    spawned: set[tuple[str, ...]] = set()
    profiles: dict[tuple[str, ...], Member] = {}
    for agent in waiting:
        made = {(*agent.path, name) for name in agent.spawned}
        for name, spec in agent.spawned.items():
            profile = spawnable.get(str(spec.get("profile"))) if isinstance(spec, Mapping) else None
            if profile:
                profiles[(*agent.path, name)] = profile.member
        around = {path for path in spawned if agent.path[: len(path)] == path}
        if around:
            spawned |= made
            # It is made anew from its specification, which stands in the thread.
            maker = members.get(min(around, key=len)[:-1])
            allowed = get_permissions(maker).spawn if maker else None
            levels = allowed.levels if allowed else 0
            if len(around) >= levels:
                lost |= {PATH_SEPARATOR.join(path): None for path in sorted(made)}
            # One without a profile has made all that are below it itself.
            top = max(around, key=len)
            if top in profiles:
                lost |= dict.fromkeys(_list_missing_below(profiles[top], agent, len(top)))
            continue
        member = members.get(agent.path)
        if member is None:
            lost[PATH_SEPARATOR.join(agent.path)] = None
            continue
        nodes = _list_nodes(member)
        below = {subordinate.name for subordinate in member.subordinates}
        if get_permissions(member).spawn:
            spawned |= made
            below.update(agent.spawned)
        gone = [name for name in agent.nodes if name not in nodes]
        gone += [name for name in agent.subordinates if name not in below]
        lost |= {PATH_SEPARATOR.join((*agent.path, name)): None for name in gone}
    return list(lost)


def _list_missing_below(profile: Member, waiting: OpenAgent, depth: int) -> list[str]:
    """Return the paths below a spawned agent that has so many names that its profile lacks."""
    member: Member | None = profile
    for name in waiting.path[depth:]:
        subordinates = member.subordinates if member else ()
        member = next((candidate for candidate in subordinates if candidate.name == name), None)
    if member is None:
        return [PATH_SEPARATOR.join(waiting.path)]
    below = {*waiting.spawned, *(subordinate.name for subordinate in member.subordinates)}
    gone = (name for name in waiting.subordinates if name not in below)
    return [PATH_SEPARATOR.join((*waiting.path, name)) for name in gone]


def _list_nodes(member: Member) -> set[str]:
    """Return the nodes of a member's level and of its delegation graph."""
    if not isinstance(member, Agent):
        return {RUN}
    nodes = {"reason"}
    if not all(map(get_provider_tool_name, member.tools)):
        nodes.add("act")
    if member.permissions.spawn:
        nodes |= {"act", "delegate", REFUSE, DISPATCH}
    if member.subordinates:
        taking = assign_nodes([subordinate.name for subordinate in member.subordinates])
        # Of very many, a resumed graph has the nodes of those that a run waits in, too.
        nodes |= {"delegate", REFUSE, *taking, *taking.values()}
    return nodes
