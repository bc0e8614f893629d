"""Tools, functions and Runnables that are only async: found, and run in a synchronous run.

They run in the session's event loop, and are cancelled like in any other: at their agent's
deadline and when it is stopped.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from langchain_core.runnables import Runnable
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from echelons.agent import Agent
from echelons.background_loop import get_background_loop
from echelons.errors import EventLoopMissing
from echelons.guards.gate import Halt
from echelons.guards.limits import get_timeout_halt, time_left
from echelons.identity.lineage import require_identity
from echelons.langgraph_internals import supports_sync
from echelons.nodes.base_node import CancelOnStop
from echelons.tree.members import FunctionMember, GraphMember, RunnableMember, walk_tree
from echelons.tree.names import PATH_SEPARATOR, get_provider_tool_name


def run_async(work: Callable[[], Awaitable[Any]], config: Mapping[str, Any]) -> Any | Halt:
    """Run async work of a synchronous run in its session's event loop.

    Returns:
        Its result, or the halt that has cancelled it.

    Raises:
        EventLoopMissing: The run is not a session's.
    """
    loop = get_background_loop(config)
    if loop is None:
        raise EventLoopMissing([PATH_SEPARATOR.join(require_identity(config).path)])
    return loop.run(partial(_run_until_halt, work, config))


def run_function(function: Callable[[], Any], config: Mapping[str, Any]) -> Any | Halt:
    """Return the result of a function of others; that of an async one as `run_async` does."""
    result = function()
    if not inspect.isawaitable(result):
        return result
    try:
        return run_async(partial(_get_awaited, result), config)
    except EventLoopMissing:
        if inspect.iscoroutine(result):
            result.close()  # it has not begun, and Python would warn of that
        raise


async def arun_function(function: Callable[[], Any], config: Any) -> Any:
    """Async version of `run_function`."""
    if inspect.iscoroutinefunction(function):
        return await function()
    # As LangChain does: on the event loop, a slow function would block every sibling.
    result = await run_in_executor(config, function)
    return await result if inspect.isawaitable(result) else result


async def _get_awaited(result: Awaitable[Any]) -> Any:
    return await result


async def _run_until_halt(
    work: Callable[[], Awaitable[Any]], config: Mapping[str, Any]
) -> Any | Halt:
    timer = asyncio.timeout(time_left(config))
    with CancelOnStop(config) as cancelled:
        try:
            async with timer:
                return await work()
        except TimeoutError:
            if not timer.expired():
                raise
            return get_timeout_halt(config)
    return cancelled.halt


def find_async_only(root: Agent) -> list[str]:
    """Return the tools and subordinates of a tree that need an event loop, by name and path."""
    return [label for label, work in _iterate_work(root) if is_async_only(work)]


def is_async_only(work: Any) -> bool:
    """Return whether a tool, function, Runnable or graph, or a part of it, has no sync form."""
    seen: set[int] = set()
    rest = [work]
    while rest:
        part = rest.pop()
        if id(part) not in seen:
            seen.add(id(part))
            if not _has_sync_form(part):
                return True
            rest += _iterate_parts(part)
    return False


def _iterate_work(root: Agent) -> Iterator[tuple[str, Any]]:
    """Yield what the members of a tree run besides models, each with a label for people."""
    for place in walk_tree(root):
        match place.member:
            case Agent() as agent:
                for tool in agent.tools:
                    if get_provider_tool_name(tool):
                        continue
                    name = getattr(tool, "name", None) or tool.__name__
                    yield f"the tool {name!r} of {place.path_text}", tool
                yield f"the prompt of {place.path_text}", agent.prompt
                if inspect.isroutine(agent.model):
                    yield f"the choice of a model of {place.path_text}", agent.model
            case FunctionMember(function=work):
                yield place.path_text, work
            case RunnableMember(runnable=work):
                yield place.path_text, work
            case GraphMember(graph=work):
                yield place.path_text, work


def _has_sync_form(work: Any) -> bool:
    if isinstance(work, BaseTool):
        return supports_sync(work)
    if inspect.isroutine(work):
        return not inspect.iscoroutinefunction(inspect.unwrap(work))
    # LangChain's lambdas and LangGraph's nodes have the first two, generators the others.
    attributes = getattr(work, "__dict__", {})
    return not any(
        attributes.get(sync) is None and attributes.get(other) is not None
        for sync, other in (("func", "afunc"), ("_transform", "_atransform"))
    )


def _iterate_parts(work: Any) -> Iterator[Any]:
    """Yield what a Runnable runs, such as the steps of a sequence and the nodes of a graph."""
    if isinstance(work, BaseTool) or not isinstance(work, Runnable):
        return
    if isinstance(agent := vars(work).get("agent"), Agent):
        # A compiled tree of ours, whose levels are compiled when they are first used.
        yield from (part for _, part in _iterate_work(agent))
    elif isinstance(work, Pregel):
        yield from (node.bound for node in work.nodes.values())
    else:
        for value in vars(work).values():
            yield from _flatten(value)


def _flatten(value: Any) -> Iterator[Runnable[Any, Any]]:
    if isinstance(value, Runnable):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _flatten(item)
