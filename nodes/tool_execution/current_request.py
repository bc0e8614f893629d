"""`get_request`: the request that an agent works on, for its tools and functions.

A subordinate's request is in the config of its run. A root has none: its request is made of its
task, which LangGraph reads from the state of its level when a tool asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from pydantic import BaseModel

from echelons.delegation.contract import Contract, dump_model
from echelons.delegation.request import USER, DelegationRequest
from echelons.errors import InvalidInput, ThreadError
from echelons.identity.lineage import (
    ASIDE_KEY,
    INPUT_KEY,
    REQUEST_CONTEXT_KEY,
    Identity,
    require_identity,
)
from echelons.langgraph_internals import READ_KEY
from echelons.run_context import NO_CONTEXT, get_context, with_context
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import PATH_SEPARATOR

AGENTS = "echelons.agents"
"""The logger above those of all agents."""


def get_request() -> DelegationRequest:
    """Return the request that the calling tool, function, Runnable or graph works on.

    A root's request has the `request_context` of `Session.send` as its context, the id of its turn,
    and the origin `"user"`.

    Raises:
        ThreadError: It is called outside of the work of an agent.
    """
    try:
        context = get_context(get_config())
    except RuntimeError:
        context = NO_CONTEXT
    if context.request:
        return context.request
    if context.read_request:
        return context.read_request()
    raise _no_request("get_request")


def get_logger() -> logging.LoggerAdapter[logging.Logger]:
    """Return a logger for the calling tool, function, Runnable or graph.

    Each of its records has the `agent_path` and the `thread_id` of the agent that works there. It
    is a child of the logger `echelons.agents`, named by the path with dots.

    Raises:
        ThreadError: It is called outside of the work of an agent.
    """
    try:
        identity = Identity.from_metadata(get_config().get("metadata") or {})
    except RuntimeError:
        identity = None
    if identity is None:
        raise _no_request("get_logger")
    fields = {"agent_path": PATH_SEPARATOR.join(identity.path), "thread_id": identity.thread_id}
    return logging.LoggerAdapter(logging.getLogger(".".join((AGENTS, *identity.path))), fields)


def find_payload(config: Mapping[str, Any], messages: Sequence[BaseMessage]) -> BaseModel | None:
    """Return the input that an agent works on, as an instance of its contract's model.

    `None` if it has none. `messages` are those of its level.
    """
    context = get_context(config)
    if context.request:
        return context.request.payload
    return _read_root_input(context.contract, _find_task(messages))


def _read_root_input(contract: Contract | None, task: BaseMessage) -> BaseModel | None:
    """Return the input that a root was sent; one that is only a text may be none."""
    if contract is None or contract.input is None:
        return None
    if (fields := task.response_metadata.get(INPUT_KEY)) is not None:
        return contract.read_input(fields)
    try:
        return contract.read_task(str(task.text))
    except InvalidInput:
        return None


def _find_task(messages: Sequence[BaseMessage]) -> BaseMessage:
    tasks = (
        message
        for message in reversed(messages)
        if isinstance(message, HumanMessage) and ASIDE_KEY not in message.response_metadata
    )
    return next(tasks, HumanMessage(""))


def with_root_request(config: RunnableConfig) -> RunnableConfig:
    """Return the config of a root's tool call, from which `get_request` finds the root's task."""
    read = partial(_read_root_request, config)
    return with_context(config, replace(get_context(config), read_request=read))


def _read_root_request(config: RunnableConfig) -> DelegationRequest:
    # Of the tool's own level: a graph that the tool runs has a state of its own.
    state: dict[str, Any] = config["configurable"][READ_KEY](["messages"])
    task, identity = _find_task(state["messages"]), require_identity(config)
    payload = _read_root_input(get_context(config).contract, task)
    request = DelegationRequest(
        id=identity.turn,
        origin=USER,
        current=identity.agent,
        task=str(task.text),
        context=task.response_metadata.get(REQUEST_CONTEXT_KEY) or {},
        path=AgentPath(identity.agent),
        input=None if payload is None else dump_model(payload),
        root_id=identity.turn,
        initiator=USER,
    )
    return request.with_payload(payload)


def _no_request(function: str) -> ThreadError:
    return ThreadError(
        "{function}() was called outside of the work of an agent; call it in a tool, a function, a "
        "Runnable or a graph that an agent of a tree runs",
        code="no_request",
        function=function,
    )
