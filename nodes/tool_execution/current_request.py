"""`get_request`: the request that an agent works on, for its tools and functions.

A subordinate's request is in the config of its run. A root has none: its request is made of its
task, which LangGraph reads from the state of its level when a tool asks for it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config

from echelons.delegation.request import CURRENT_REQUEST_KEY, DelegationRequest
from echelons.errors import NoRequest
from echelons.identity.lineage import MAIL_KEY, REQUEST_CONTEXT_KEY, require_identity
from echelons.langgraph_internals import READ_KEY

USER = "user"
"""The origin of a root's request."""


def get_request() -> DelegationRequest:
    """Return the request that the calling tool, function, Runnable or graph works on.

    A root's request has the `request_context` of `Session.send` as its context, the id of its turn,
    and the origin `"user"`.

    Raises:
        NoRequest: It is called outside of the work of an agent.
    """
    try:
        known: Any = (get_config().get("configurable") or {}).get(CURRENT_REQUEST_KEY)
    except RuntimeError:
        known = None
    if isinstance(known, partial):
        known = known()
    if not isinstance(known, DelegationRequest):
        raise NoRequest("get_request")
    return known


def with_root_request(config: RunnableConfig) -> RunnableConfig:
    """Return the config of a root's tool call, from which `get_request` finds the root's task."""
    reader = partial(_read_root_request, config)
    return {**config, "configurable": {**config["configurable"], CURRENT_REQUEST_KEY: reader}}


def _read_root_request(config: RunnableConfig) -> DelegationRequest:
    # Of the tool's own level: a graph that the tool runs has a state of its own.
    state: dict[str, Any] = config["configurable"][READ_KEY](["messages"])
    tasks = (
        each
        for each in reversed(state["messages"])
        if isinstance(each, HumanMessage) and MAIL_KEY not in each.response_metadata
    )
    task, identity = next(tasks, HumanMessage("")), require_identity(config)
    return DelegationRequest(
        id=identity.turn,
        origin=USER,
        current=identity.agent,
        task=str(task.text),
        context=task.response_metadata.get(REQUEST_CONTEXT_KEY) or {},
        path=(identity.agent,),
    )
