"""The members of a tree: walks over them, and the roster that models and the planner read."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable

from echelons.errors import ConfigurationError, duplicate_name, invalid_name, invalid_subordinate
from echelons.guards.limits import MAX_DEPTH
from echelons.prompts import load_tool_texts
from echelons.text.error_lines import join_printable
from echelons.text.input_limits import list_items
from echelons.tree.names import NAME_PATTERN, PATH_SEPARATOR, check_name, get_provider_tool_name


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


def is_watched(root: Member) -> bool:
    """Return whether monitors watch any member of a tree."""
    return any(list_monitors(place.member) for place in walk_tree(root))


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


def measure_heights(root: Member, with_added: bool = False) -> dict[str, int]:
    """Return the number of levels from each member down, itself included, by its name.

    With `with_added`, levels that may be added at run time count too.
    """
    heights: dict[str, int] = {}
    for place in walk_tree(root):
        below = sum(_list_spawned_levels(place.member)) if with_added else 0
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
            # Agents that it has made need the tools that it gave them.
            *sorted({*_list_given_tools(place.member)}),
        )
        for place in walk_tree(root)
    )
    return hashlib.sha256(json.dumps(members).encode()).hexdigest()[:16]


def _list_spawned_levels(member: Member) -> tuple[int, ...]:
    spawn = getattr(getattr(member, "permissions", None), "spawn", None)
    return (spawn.levels,) if spawn else ()


def _list_given_tools(member: Member) -> tuple[str, ...]:
    spawn = getattr(getattr(member, "permissions", None), "spawn", None)
    return spawn.tools if spawn else ()


def collect_capabilities(member: Member) -> dict[str, float]:
    """Return the capabilities declared in a subtree, each with its highest confidence."""
    best: dict[str, float] = {}
    for place in walk_tree(member):
        for capability, confidence in place.member.capabilities.items():
            best[capability] = max(confidence, best.get(capability, 0.0))
    return best


MAX_NAMES: Final = 8
"""Tools, subordinates or capabilities of a branch that its superior's model reads at most."""
NOTHING_LISTED: Final = "(nothing listed)"

_CAN: Final = ". Can: "
_LINE: Final = re.compile(rf"- ({NAME_PATTERN.pattern}): ")
_PLAIN: Final = re.compile(r"\w(?:[\w &/'+-]{0,198}\w)?")
_ABILITY: Final = re.compile(r'("(?:[^"\\]|\\.)*"|[^",()]+) \(([^()\s]+)\)(?:, |$)')


@dataclass(frozen=True)
class RosterEntry:
    """One subordinate as described to its superior; the description is put on one line."""

    name: str
    description: str = ""
    capabilities: Mapping[str, float] = field(default_factory=dict)  # of its whole subtree

    def __post_init__(self) -> None:
        check_name(self.name)  # the line of any other could not be parsed
        object.__setattr__(self, "description", join_printable(self.description).rstrip(". "))


def render_roster(entries: Iterable[RosterEntry]) -> str:
    """Return the roster of some subordinates, one line each, in order.

    >>> print(render_roster([RosterEntry("hotels", "Finds rooms.", {"sleep": 0.9, "rooms": 1.0})]))
    - hotels: Finds rooms. Can: sleep (0.9), rooms (1.0)
    """
    return "\n".join(
        f"- {entry.name}: {entry.description}{_CAN}{_format_capabilities(entry.capabilities)}"
        for entry in entries
    )


def describe_subordinates(members: Iterable[Member]) -> str:
    """Return what an agent's model reads of its subordinates; empty if it has none.

    A line has the name, the description, or else the capabilities, and the names of the tools or
    the subordinates.
    """
    lines = [_describe_member(member) for member in members]
    return "\n".join([load_tool_texts("roster")["heading"], *lines]) if lines else ""


def _describe_member(member: Member) -> str:
    about = join_printable(member.description).rstrip(". ") or _list_names(member.capabilities)
    if names := [subordinate.name for subordinate in member.subordinates]:
        has = f"Subordinates: {_list_names(names)}"
    else:
        tools = getattr(member, "tools", ())
        names = [
            get_provider_tool_name(tool)
            or str(getattr(tool, "name", None) or getattr(tool, "__name__", ""))
            for tool in tools
        ]
        has = f"Tools: {_list_names(names)}" if names else ""
    facts = ". ".join(filter(None, (about, has)))
    return f"- {member.name}: {facts}." if facts else f"- {member.name}"


def _list_names(names: Iterable[str]) -> str:
    shown = [join_printable(name) for name in names]
    more = f" and {len(shown) - MAX_NAMES} more" if len(shown) > MAX_NAMES else ""
    return ", ".join(shown[:MAX_NAMES]) + more


def parse_roster(text: str) -> tuple[RosterEntry, ...]:
    r"""Return the entries of a roster; lines of any other form are skipped.

    >>> parse_roster("You may call:\n- hotels: Finds rooms. Can: sleep (0.9)")
    (RosterEntry(name='hotels', description='Finds rooms', capabilities={'sleep': 0.9}),)
    """
    return tuple(entry for line in text.split("\n") if (entry := _parse_line(line)))


def _parse_line(line: str) -> RosterEntry | None:
    head = _LINE.match(line)
    description, can, abilities = line[head.end() if head else 0 :].rpartition(_CAN)
    if not head or not can:
        return None
    try:
        return RosterEntry(head[1], description, _parse_capabilities(abilities))
    except ConfigurationError:  # not an agent's name, so not a line of a roster
        return None


def _format_capabilities(capabilities: Mapping[str, float]) -> str:
    quoted = {
        name: name if _PLAIN.fullmatch(name) else json.dumps(name).replace(":", "\\u003a")
        for name in capabilities
    }
    listed = (f"{quoted[name]} ({float(value)!r})" for name, value in capabilities.items())
    return ", ".join(listed) or NOTHING_LISTED


def _parse_capabilities(text: str) -> dict[str, float]:
    capabilities: dict[str, float] = {}
    end = 0
    # Matching from `end` keeps malformed text linear; a search would start again everywhere.
    while ability := _ABILITY.match(text, end):
        end = ability.end()
        try:
            name = str(json.loads(ability[1])) if ability[1].startswith('"') else ability[1]
            capabilities[name] = float(ability[2])
        except ValueError:  # some other line that happens to look like one of a roster
            continue
    return capabilities
