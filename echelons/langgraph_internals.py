"""The private parts of LangGraph and LangChain that Echelons relies on, each with what it buys.

Other modules take the names from here. A name that LangGraph or LangChain takes away fails here, at
import, and not as lost state in a run; `tests/contracts` says what else broke. The bounds in
`pyproject.toml` end at the next minor version for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langgraph._internal._config import _PROPAGATE_TO_METADATA
from langgraph._internal._constants import (
    _CHECKPOINT_COORDINATE_KEYS,
    CONFIG_KEY_CHECKPOINT_MAP,
    CONFIG_KEY_CHECKPOINTER,
    CONFIG_KEY_DURABILITY,
    CONFIG_KEY_READ,
    CONFIG_KEY_RESUME_MAP,
    CONFIG_KEY_RESUMING,
    CONFIG_KEY_SCRATCHPAD,
    CONFIG_KEY_SEND,
    CONFIG_KEY_STREAM,
    CONFIG_KEY_TASK_ID,
    INPUT,
    NS_END,
    NS_SEP,
    NULL_TASK_ID,
    PULL,
    PUSH,
)
from langgraph._internal._scratchpad import PregelScratchpad
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.checkpoint.serde.types import _DeltaSnapshot as DeltaSnapshot
from langgraph.checkpoint.sqlite.utils import search_where
from langgraph.pregel._algo import _uuid5_str, _xxhash_str
from langgraph.pregel._loop import AsyncPregelLoop, SyncPregelLoop
from langgraph.pregel._messages import StreamMessagesHandler

__all__ = [
    "BRANCH_PREFIX",
    "CHECKPOINTER_KEY",
    "CHECKPOINT_MAP_KEY",
    "DELTA_COUNTERS_KEY",
    "DURABILITY_KEY",
    "INPUT",
    "NS_END",
    "NS_SEP",
    "NULL_TASK_ID",
    "OWN_CONFIG_KEYS",
    "PRIVATE_PREFIX",
    "PULL",
    "READ_KEY",
    "RESUME_MAP_KEY",
    "RESUMING_KEY",
    "SCRATCHPAD_KEY",
    "SEND_KEY",
    "SEVERAL_WRITES_KEY",
    "STREAM_EVENTS_KEY",
    "STREAM_KEY",
    "STREAM_QUEUE_NAME",
    "TASK_ID_KEY",
    "TASK_PATH_KEY",
    "AsyncPregelLoop",
    "DeltaSnapshot",
    "StreamMessagesHandler",
    "SyncPregelLoop",
    "advance_checkpoint_ids",
    "compute_task_id",
    "list_state_keys",
    "parent_config",
    "search_where",
    "supports_async",
    "supports_sync",
]

# What a graph that runs another one puts into its config. Read: a nested graph stores with the
# saver of the graph around it, knows whether it resumes, and whether each step is stored.
CHECKPOINTER_KEY = CONFIG_KEY_CHECKPOINTER
RESUMING_KEY = CONFIG_KEY_RESUMING
# What the names of all of these begin with: from a caller, one of them is refused.
PRIVATE_PREFIX: Final = CHECKPOINTER_KEY.removesuffix("checkpointer")
DURABILITY_KEY = CONFIG_KEY_DURABILITY
TASK_ID_KEY = CONFIG_KEY_TASK_ID
READ_KEY = CONFIG_KEY_READ

# The key of a task's metadata that says how it was begun; `PULL` is the first part of what stands
# there if it was not by a `Send`. Read: such a task may run several calls of a tool.
TASK_PATH_KEY: Final = "langgraph_path"

# The checkpoint of each namespace that a forked run begins from. Read: a resumed graph must have
# the nodes that its checkpoint waits in.
CHECKPOINT_MAP_KEY = CONFIG_KEY_CHECKPOINT_MAP

# The answers to a task's interrupts and the way to send writes of it. Read and changed: a
# question of ours, not of the tool, takes a place among the interrupts of one task.
SCRATCHPAD_KEY = CONFIG_KEY_SCRATCHPAD
SEND_KEY = CONFIG_KEY_SEND
RESUME_MAP_KEY = CONFIG_KEY_RESUME_MAP

# Where a graph within streams to the graph around it. Kept for a `RemoteGraph`, which reads it here
# and sends it nowhere.
STREAM_KEY = CONFIG_KEY_STREAM

OWN_CONFIG_KEYS = frozenset((*_CHECKPOINT_COORDINATE_KEYS, *_PROPAGATE_TO_METADATA))
"""Keys of `configurable` that LangGraph reads itself, or stores in the metadata. A session refuses
them: they would lead its run to another thread."""

BRANCH_PREFIX: Final = "branch:to:"
"""How the channels begin that trigger a node. A nested graph is entered at its first node,
without the step of `__start__` (two steps a level saved), and the inbox of a stored run is found
without its graph. LangGraph has no constant for it."""

DELTA_COUNTERS_KEY: Final = "counters_since_delta_snapshot"
"""Where a checkpoint's metadata counts the steps since its delta channels were stored whole."""

STREAM_EVENTS_KEY: Final = "__pregel_stream_messages_v2"
"""What `stream_events(version="v3")` puts into the config of its own run."""
SEVERAL_WRITES_KEY: Final = "$writes"
"""How the stream of `updates` shows several updates of one task."""

parent_config = var_child_runnable_config
"""The config around a call. `update_state` drops a config's metadata after the first of several
steps; this one reaches them all, so that the identity of an edited state is kept."""

# `NULL_TASK_ID` is the task under which LangGraph stores what comes from outside, `NS_SEP` stands
# between the graphs of a namespace: with them pending work is found without the graph that left
# it, so that no changed tree hides a question.
# `DeltaSnapshot` is the stored form of a whole delta channel, which backups, events and
# pruning look into. `search_where` builds LangGraph's own conditions for `list`, so that
# verified reads find what LangGraph's do.


def advance_checkpoint_ids(ticks: int) -> None:
    """Make every checkpoint id that this process makes from now on later than a time.

    The id of a checkpoint is its rank: without this, what is stored under a clock that was set
    back would never be found again.

    Args:
        ticks: Units of 100 ns since 1582, as in a UUID of version 6.
    """
    made: Any = checkpoint_ids
    if (made._last_v6_timestamp or 0) < ticks:
        made._last_v6_timestamp = ticks


def list_state_keys(config: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of the state of the graph whose node has a config; empty outside of one.

    LangGraph ignores an update of any other key. Its `ToolNode` reads the state in the same way.
    """
    read = (config.get("configurable") or {}).get(READ_KEY)
    return frozenset(read.args[1]) if read else frozenset()


def compute_task_id(saved: CheckpointTuple, node: str, send: int | None = None) -> str:
    """Return the id that LangGraph gives to a task of a checkpoint's next step.

    A task that has neither ended nor asked has written nothing, so that only its id leads to the
    graph that it runs, in which an agent may ask while others work.

    Args:
        saved: The checkpoint.
        node: The node that the task runs.
        send: The number of the `Send` that starts it, from 0; `None` if the node is triggered by
            its own channel alone.
    """
    namespace = saved.config["configurable"]["checkpoint_ns"]
    checkpoint = saved.checkpoint
    # As in `prepare_push_task_send`, and in `prepare_single_task` for what is pulled.
    origin = (PULL, f"{BRANCH_PREFIX}{node}") if send is None else (PUSH, str(send))
    return (_xxhash_str if checkpoint["v"] > 1 else _uuid5_str)(
        bytes.fromhex(checkpoint["id"].replace("-", "")),
        f"{namespace}{NS_SEP}{node}" if namespace else node,
        str(saved.metadata.get("step", 0) + 1),
        node,
        *origin,
    )


def supports_async(tool: BaseTool) -> bool:
    """Return whether a tool has an async form of its own, and so runs in the event loop.

    LangChain has no query for it: a `StructuredTool` has a coroutine or none, any other class
    overrides `_arun` or does not.
    """
    wrapper: Any = tool
    if hasattr(wrapper, "coroutine"):
        return wrapper.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def supports_sync(tool: BaseTool) -> bool:
    """Return whether a tool can run without an event loop.

    Of a class that has to override `_run`, that says no more than `raise NotImplementedError`, as
    LangChain's documentation has it.
    """
    wrapper: Any = tool
    if hasattr(wrapper, "coroutine"):
        return wrapper.func is not None or wrapper.coroutine is None
    code = getattr(type(tool)._run, "__code__", None)
    is_refusing = code is not None and code.co_names == (NotImplementedError.__name__,)
    return not (is_refusing and supports_async(tool))


# `SyncPregelLoop` and `AsyncPregelLoop` are subclassed in `graphs/inline_writes.py`: a run
# then stores in the calling thread, or in its own task. A third of the cost of a synchronous run
# was the way of each write through a thread pool; in an event loop there was a task for each.
STREAM_QUEUE_NAME: Final = "SyncQueue"
"""The global name under which LangGraph's `stream` looks up the class of its event queue, which is
replaced there, too: it waits for events in a thread of the pool, which may have none left, and
which would keep a process from ending."""

# `StreamMessagesHandler` streams the tokens of models, and every message that a node returns. It is
# subclassed in `graphs/token_stream.py`, as a session needs only the tokens.

# The attributes that are set or read on objects of LangGraph, checked once.
for _owner, _names in (
    (checkpoint_ids, ("_last_v6_timestamp",)),
    (SyncPregelLoop, ("_checkpointer_put_after_previous",)),
    (AsyncPregelLoop, ("_checkpointer_put_after_previous",)),
    (PregelScratchpad, ("resume", "interrupt_counter", "get_null_resume", "subgraph_counter")),
):
    for _name in _names:
        if not hasattr(_owner, _name) and _name not in getattr(_owner, "__annotations__", ()):
            raise ImportError(
                f"LangGraph's {_owner.__name__} has no attribute {_name!r} any more; install the "
                "versions of langgraph and langgraph-checkpoint that Echelons names as its own"
            )
