"""The members of a tree: what it needs to know of each, and walks over all of them.

A graph, a Runnable or a function is wrapped in a small class that looks like an agent to the tree.
`graphs` turns each into a level of one node, so that even a function has a thread of its own.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from echelons.errors import (
    ConfigurationError,
    duplicate_name,
    invalid_name,
    invalid_subordinate,
)
from echelons.guards.limits import MAX_DEPTH
from echelons.text.input_limits import list_items
from echelons.tree.names import PATH_SEPARATOR, check_name


def create_empty_capabilities() -> Mapping[str, float]:
    """Return an empty mapping; a factory, since dataclasses require one for mappings."""
    return MappingProxyType({})


@runtime_checkable
class Member(Protocol):
    """The facts that the tree needs about a member."""

    @property
    def name(self) -> str:
        """Its name, unique in the tree."""
        ...

    @property
    def description(self) -> str:
        """Its purpose, for its superior's model."""
        ...

    @property
    def capabilities(self) -> Mapping[str, float]:
        """Its declared capabilities, each with a confidence from 0 to 1."""
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
        """Always empty: what a wrapped object calls is not part of the tree."""
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
    """Return a list of subordinates as members of the tree, see `adopt_member`."""
    if isinstance(subordinates, (str, bytes, Mapping)) or not hasattr(subordinates, "__iter__"):
        raise invalid_subordinate(superior, subordinates, "pass a list of subordinates")
    return tuple(adopt_member(superior, member) for member in list_items(subordinates))


def adopt_member(superior: str, subordinate: Any, name: str | None = None) -> Member:
    """Return a subordinate as a member of the tree, wrapped if it is not one yet.

    A compiled tree stands for its `Agent`. `name` replaces the own name of a wrapped object, and
    `superior` is for the error.
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
        default = getattr(subordinate, "name", None)
        default = default if isinstance(default, str) else str(subordinate.get_name())
        name = _choose_name(name, default)
        return RunnableMember(name, _get_summary(subordinate), runnable=subordinate)
    if inspect.isroutine(subordinate):
        return _adopt_function(superior, subordinate, name)
    why = "pass an Agent, a LangGraph graph, a Runnable or a function"
    if hasattr(subordinate, "watches"):
        why = "a monitor is given no tasks; pass it as monitors=[...]"
    raise invalid_subordinate(superior, subordinate, why)


def _choose_name(name: str | None, default: str) -> str:
    """Return the name for a wrapped object: its own if none is passed, which may be invalid."""
    if name is not None:
        return name
    try:
        return check_name(default)
    except ConfigurationError as error:
        remedy = "the object's own; give it another: subordinate(..., name='...')"
        raise invalid_name(default, remedy) from error


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
    default = getattr(function, "__name__", "")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:  # some built-in functions have no signature
        raise invalid_subordinate(superior, default, f"{error}; wrap it in a function") from error
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) != 1 or required[0].kind is inspect.Parameter.KEYWORD_ONLY:
        why = f"it requires {len(required)} parameters; a function takes one, the message"
        raise invalid_subordinate(superior, default or function, why)
    return FunctionMember(_choose_name(name, default), _get_summary(function), function=function)


def _get_summary(thing: Any) -> str:
    # A class's docstring says what the class is, not what this object does.
    doc = inspect.getdoc(thing) if inspect.isroutine(thing) else getattr(thing, "description", "")
    return (doc or "").strip().split("\n\n")[0].replace("\n", " ")


@dataclass(frozen=True, slots=True)
class TreePlace:
    """A member of a tree, and the names from the root down to the member itself."""

    member: Member
    path: tuple[str, ...]

    @property
    def path_text(self) -> str:
        """The path as a string, such as `head/experiences/restaurants`."""
        return PATH_SEPARATOR.join(self.path)


def walk_tree(root: Member) -> Iterator[TreePlace]:
    """Yield every member with its path, depth first, subordinates in order."""
    stack = [(TreePlace(root, (root.name,)), frozenset({id(root)}))]
    while stack:
        place, superiors = stack.pop()
        yield place
        for subordinate in reversed(place.member.subordinates):
            path = (*place.path, subordinate.name)
            if id(subordinate) in superiors:
                raise ConfigurationError(
                    "the tree has a cycle: {path: -> }; every agent has one superior",
                    code="cyclic_tree",
                    path=path,
                )
            stack.append((TreePlace(subordinate, path), superiors | {id(subordinate)}))


def list_monitors(member: Member) -> Sequence[Any]:
    """Return the monitors that a member of a tree has."""
    monitors: Sequence[Any] = getattr(member, "monitors", ())
    return monitors


def check_tree(root: Member, depth: int) -> None:
    """Check that a tree has no cycles, unique names, and at most `depth` levels."""
    places: dict[str, TreePlace] = {}
    deepest = 0
    for place in walk_tree(root):
        other = places.setdefault(place.member.name, place)
        if other is not place:
            raise duplicate_name(place.member.name, (other.path_text, place.path_text))
        deepest = max(deepest, len(place.path))
    if deepest > depth:
        remedy = ", or raise the root's Limits(depth=...) up to {maximum}"
        if deepest > MAX_DEPTH:
            remedy = ": no tree may be deeper than {maximum} levels"
        raise ConfigurationError(
            f"the tree is {{depth}} levels deep, the limit is {{limit}}; flatten it{remedy}",
            code="tree_too_deep",
            depth=deepest,
            limit=depth,
            maximum=MAX_DEPTH,
        )


def measure_heights(root: Member, with_spawned: bool = False) -> dict[str, int]:
    """Return the number of levels from each member down, itself included, by its name.

    With `with_spawned`, levels that may be made at run time count too.
    """
    heights: dict[str, int] = {}
    for place in walk_tree(root):
        below = sum(_list_spawned_levels(place.member)) if with_spawned else 0
        for levels, name in enumerate(reversed(place.path), start=1 + below):
            heights[name] = max(levels, heights.get(name, 0))
    return heights


def fingerprint_tree(root: Member) -> str:
    """Return a short digest of a tree's names and shape, equal in every process."""
    # What decides which nodes a member has. A stored run can be resumed after prompts, models and
    # the tools themselves have changed.
    members = sorted(
        (
            place.path_text,
            type(place.member).__name__,
            bool(getattr(place.member, "tools", ())),
            *_list_spawned_levels(place.member),
        )
        for place in walk_tree(root)
    )
    return hashlib.sha256(json.dumps(members).encode()).hexdigest()[:16]


def _list_spawned_levels(member: Member) -> tuple[int, ...]:
    spawn = getattr(getattr(member, "permissions", None), "spawn", None)
    return (spawn.levels,) if spawn else ()


def collect_capabilities(member: Member) -> dict[str, float]:
    """Return the capabilities declared in a subtree, each with its highest confidence."""
    best: dict[str, float] = {}
    for place in walk_tree(member):
        for capability, confidence in place.member.capabilities.items():
            best[capability] = max(confidence, best.get(capability, 0.0))
    return best
