"""Members of a tree that are not an `Agent`: graphs, Runnables and plain functions.

Each kind is a small class that looks like an agent to the tree (name, description,
capabilities, no subordinates) and holds the wrapped object. `graphs` turns each into a level
of one node, so that even a function has a thread of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from echelons.errors import ConfigurationError, invalid_name, invalid_subordinate
from echelons.text.input_limits import list_items
from echelons.tree.names import check_name


def create_empty_capabilities() -> Mapping[str, float]:
    """Return an empty mapping; a factory, since dataclasses require one for mappings."""
    return MappingProxyType({})


@runtime_checkable
class Member(Protocol):
    """What the tree needs to know of each of its members."""

    @property
    def name(self) -> str:
        """The name, unique in the tree."""
        ...

    @property
    def description(self) -> str:
        """The member's purpose, for its superior's model."""
        ...

    @property
    def capabilities(self) -> Mapping[str, float]:
        """The declared capabilities, each with a confidence from 0 to 1."""
        ...

    @property
    def subordinates(self) -> tuple[Member, ...]:
        """The members directly below it."""
        ...


@dataclass(frozen=True, slots=True)
class _WrappedMember:
    name: str
    description: str
    capabilities: Mapping[str, float] = field(default_factory=create_empty_capabilities)
    contract: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def subordinates(self) -> tuple[Member, ...]:
        """Always empty: whatever a wrapped object calls is not part of the tree."""
        return ()


@dataclass(frozen=True, slots=True)
class FunctionMember(_WrappedMember):
    """A function that takes the message and returns the result."""

    function: Callable[..., Any] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class RunnableMember(_WrappedMember):
    """A LangChain Runnable that takes the message as a string."""

    runnable: Any = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class GraphMember(_WrappedMember):
    """A compiled LangGraph graph whose state has a `messages` key."""

    graph: Any = field(kw_only=True)


def adopt_members(superior: str, subordinates: Any) -> tuple[Member, ...]:
    """Return a list of subordinates as members of the tree, see `adopt_member`.

    Raises:
        ConfigurationError: It is not a list.
    """
    if isinstance(subordinates, (str, bytes, Mapping)) or not hasattr(subordinates, "__iter__"):
        raise invalid_subordinate(superior, subordinates, "pass a list of subordinates")
    return tuple(adopt_member(superior, each) for each in list_items(subordinates))


def adopt_member(superior: str, subordinate: Any, name: str | None = None) -> Member:
    """Return a subordinate as a member of the tree, wrapped if it is not one yet.

    Args:
        superior: Name of its superior, for the error; empty if it has none yet.
        subordinate: An `Agent` or other member, a compiled tree, which stands for its `Agent`, a
            compiled LangGraph graph, a Runnable, or a function with one required parameter (the
            message).
        name: The name of what is wrapped, in place of its own.

    Raises:
        ConfigurationError: It is none of these, or a graph that cannot be nested.
        ConfigurationError: Its name is not a valid agent name.
    """
    # A class has all the attributes that are looked for below, but is not an instance.
    if isinstance(subordinate, type):
        raise invalid_subordinate(superior, subordinate, "it is a class; pass an object of it")
    if isinstance(subordinate, Member):
        return subordinate
    if hasattr(subordinate, "get_subgraphs") and hasattr(subordinate, "checkpointer"):
        tree = getattr(subordinate, "agent", None)
        if not isinstance(tree, Member):
            return _adopt_graph(superior, subordinate, name)
        if subordinate.store is not None:
            why = "it is compiled with a store, and a whole tree has the store of its root; "
            raise invalid_subordinate(
                superior, tree.name, why + "compile it without, or pass its Agent"
            )
        return tree
    if hasattr(subordinate, "invoke") and hasattr(subordinate, "ainvoke"):
        own = getattr(subordinate, "name", None)
        own = own if isinstance(own, str) else str(subordinate.get_name())
        name = _choose_name(name, own)
        return RunnableMember(name, _get_summary(subordinate), runnable=subordinate)
    if inspect.isroutine(subordinate):
        return _adopt_function(superior, subordinate, name)
    why = "pass an Agent, a LangGraph graph, a Runnable or a function"
    if hasattr(subordinate, "watches"):
        why = "a monitor is given no tasks; pass it as monitors=[...]"
    raise invalid_subordinate(superior, subordinate, why)


def _choose_name(given: str | None, own: str) -> str:
    """Return the name given to a wrapped object, else its own.

    Raises:
        ConfigurationError: Its own is needed, and is not a valid agent name.
    """
    if given is not None:
        return given
    try:
        return check_name(own)
    except ConfigurationError as error:
        remedy = "the object's own; give it another: subordinate(..., name='...')"
        raise invalid_name(own, remedy) from error


def _adopt_graph(superior: str, graph: Any, name: str | None) -> GraphMember:
    # True: parallel calls would overwrite each other's history. False: its interrupts could not
    # be resumed. An inherited checkpointer (None) avoids both.
    why = ""
    if isinstance(graph.checkpointer, bool):
        why = f"it is compiled with checkpointer={graph.checkpointer}; "
        why += "compile it without a checkpointer, it inherits the tree's"
    elif "messages" not in graph.channels:
        why = f"its state has no 'messages' key (it has: {', '.join(sorted(graph.channels))}); "
        why += "add one, or wrap the graph in a function"
    if why:
        raise invalid_subordinate(superior, graph.name, why)
    return GraphMember(_choose_name(name, graph.name), _get_summary(graph), graph=graph)


def _adopt_function(
    superior: str, function: Callable[..., Any], name: str | None
) -> FunctionMember:
    own = getattr(function, "__name__", "")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:  # some built-in functions have no signature
        raise invalid_subordinate(superior, own, f"{error}; wrap it in a function") from error
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) != 1 or required[0].kind is inspect.Parameter.KEYWORD_ONLY:
        why = f"it requires {len(required)} parameters; a function takes one, the message"
        raise invalid_subordinate(superior, own or function, why)
    return FunctionMember(_choose_name(name, own), _get_summary(function), function=function)


def _get_summary(thing: Any) -> str:
    # A class's docstring says what the class is, not what this object does.
    doc = inspect.getdoc(thing) if inspect.isroutine(thing) else getattr(thing, "description", "")
    return (doc or "").strip().split("\n\n")[0].replace("\n", " ")
