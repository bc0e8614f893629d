"""Subordinates that are no ``Agent``: graphs, Runnables and plain functions.

Each kind is a small class that looks like an agent to the tree (name, description,
capabilities, no subordinates) and keeps the foreign thing as it is. ``adopt`` chooses
the kind; ``Agent`` calls it at construction, ``graphs`` turns each kind into a level of
one node, so that a function too has a thread of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from echelons.errors import InvalidSubordinate
from echelons.tree.names import check_name


def no_capabilities() -> Mapping[str, float]:
    """Return the empty declaration; a factory, since dataclasses want one for mappings."""
    return MappingProxyType({})


@runtime_checkable
class Member(Protocol):
    """What the tree knows of anything that stands in it."""

    @property
    def name(self) -> str:
        """Its name, unique in the tree."""
        ...

    @property
    def description(self) -> str:
        """What it is for."""
        ...

    @property
    def capabilities(self) -> Mapping[str, float]:
        """What it can do, each with a confidence from 0 to 1."""
        ...

    @property
    def subordinates(self) -> tuple[Member, ...]:
        """Who works for it."""
        ...


@dataclass(frozen=True, slots=True)
class _Foreign:
    name: str
    description: str
    capabilities: Mapping[str, float] = field(default_factory=no_capabilities)

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def subordinates(self) -> tuple[Member, ...]:
        """A foreign subordinate shows nothing below itself."""
        return ()


@dataclass(frozen=True, slots=True)
class FunctionMember(_Foreign):
    """A plain function that takes the message and returns the result."""

    function: Callable[..., Any] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class RunnableMember(_Foreign):
    """Any LangChain Runnable that takes the message as text."""

    runnable: Any = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class GraphMember(_Foreign):
    """A compiled LangGraph graph whose state has a ``messages`` key."""

    graph: Any = field(kw_only=True)


def adopt_all(superior: str, things: Any) -> tuple[Member, ...]:
    """Return each of some things as a member of the tree, see ``adopt``.

    Raises:
        InvalidSubordinate: One of them is none, or they are no list.
        InvalidName: The name of one is no valid agent name.
    """
    if isinstance(things, (str, bytes, Mapping)) or not hasattr(things, "__iter__"):
        raise InvalidSubordinate(superior, things, "pass a list of subordinates")
    return tuple(adopt(superior, each) for each in things)


def adopt(superior: str, thing: Any) -> Member:
    """Return ``thing`` as a member of the tree.

    Args:
        superior: Name of the agent that wants it, for the error.
        thing: An ``Agent`` or other member, a compiled LangGraph graph, a Runnable, or a
            function with one required parameter (the message).

    Raises:
        InvalidSubordinate: It is none of these, or a graph that cannot be nested.
        InvalidName: Its own name is no valid agent name.
    """
    # A class has every attribute of its objects, and can do nothing.
    if isinstance(thing, type):
        raise InvalidSubordinate(superior, thing, "it is a class; pass an object of it")
    if isinstance(thing, Member):
        return thing
    if hasattr(thing, "get_subgraphs") and hasattr(thing, "checkpointer"):
        return _adopt_graph(superior, thing)
    if hasattr(thing, "invoke") and hasattr(thing, "ainvoke"):
        return RunnableMember(_runnable_name(thing), _summary(thing), runnable=thing)
    if inspect.isroutine(thing):
        return _adopt_function(superior, thing)
    raise InvalidSubordinate(
        superior, thing, "pass an Agent, a LangGraph graph, a Runnable or a function"
    )


def _adopt_graph(superior: str, graph: Any) -> GraphMember:
    # True: parallel calls would share one history and lose it. False: its interrupt could
    # not be resumed. Only an inherited checkpointer (None) keeps both promises.
    if isinstance(graph.checkpointer, bool):
        raise InvalidSubordinate(
            superior,
            graph.name,
            f"it is compiled with checkpointer={graph.checkpointer}; "
            "compile it without a checkpointer, it inherits the tree's",
        )
    if "messages" not in graph.channels:
        raise InvalidSubordinate(
            superior,
            graph.name,
            f"its state has no 'messages' key (it has: {', '.join(sorted(graph.channels))}); "
            "add one, or wrap the graph in a function",
        )
    return GraphMember(graph.name, _summary(graph), graph=graph)


def _adopt_function(superior: str, function: Callable[..., Any]) -> FunctionMember:
    name = getattr(function, "__name__", "")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:  # some built-in functions tell none
        raise InvalidSubordinate(superior, name, f"{error}; wrap it in a function") from error
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) != 1 or required[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise InvalidSubordinate(
            superior,
            name or function,
            f"it requires {len(required)} parameters; a function takes one, the message",
        )
    return FunctionMember(name, _summary(function), function=function)


def _runnable_name(runnable: Any) -> str:
    name = getattr(runnable, "name", None)
    return name if isinstance(name, str) else str(runnable.get_name())


def _summary(thing: Any) -> str:
    # A class's docstring says what the class is, not what this object does.
    doc = inspect.getdoc(thing) if inspect.isroutine(thing) else getattr(thing, "description", "")
    return (doc or "").strip().split("\n\n")[0].replace("\n", " ")
