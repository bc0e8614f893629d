"""What an agent may do: the calls that run, wait or are refused, and the agents it may make."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, cast

from pydantic import Field, StrictBool, field_validator

from echelons.errors import InvalidSetting
from echelons.guards.budget import Budget
from echelons.settings import Settings
from echelons.text.error_lines import describe_error
from echelons.text.input_limits import shorten_repr

SpawnedKind: TypeAlias = Literal["mortal", "drone"]
"""The kinds of spawned agents.

A mortal may be called again, and is dismissed when its superior has ended its task, unless it is
kept. A drone has no subordinates, and is dismissed at its first answer that is no question.
"""
SPAWNED_KINDS: Final[tuple[SpawnedKind, ...]] = ("mortal", "drone")
SpawnName: TypeAlias = Annotated[str, Field(min_length=1, max_length=1024)]
MAX_SPAWNED = 10_000
"""Highest number of agents that one may be allowed to spawn in a conversation."""


class Spawn(Settings):
    """Which subordinates an agent may make at run time.

    They have no more rights than it has. A spawned agent may spawn too, `levels` deep, and no more
    kinds, profiles and tools than its superior; the numbers are for each agent and conversation.

    Attributes:
        kinds: The kinds that it may make: `"mortal"`, `"drone"` or both.
        profiles: Names of the agents of `Session(spawnable=...)` that it may make copies of.
        tools: Names of its own tools that it may give to agents without a profile.
        at_once: How many of them may be there at the same time.
        total: How many it may make, those counted that are dismissed.
        levels: How many levels of spawned agents there may be below it.
        inherit_middleware: Whether its middleware is around theirs, as around that of a declared
            subordinate with `inherit_middleware`.

    Raises:
        InvalidSetting: A value is out of its range, or a setting has an unknown name.

    Examples:
        >>> Spawn(tools=("search",), levels=1).kinds
        ('mortal', 'drone')
    """

    kinds: tuple[SpawnedKind, ...] = Field(default=SPAWNED_KINDS, min_length=1)
    profiles: tuple[SpawnName, ...] = ()
    tools: tuple[SpawnName, ...] = ()
    at_once: int = Field(default=8, ge=1, le=MAX_SPAWNED)
    total: int = Field(default=50, ge=1, le=MAX_SPAWNED)
    levels: int = Field(default=2, ge=1, le=32)
    inherit_middleware: bool = False

    @field_validator("kinds", "profiles", "tools", mode="before")
    @classmethod
    def _refuse_text(cls, value: Any) -> Any:
        # Pydantic takes a text for a list of its letters.
        return value if isinstance(value, list | tuple) else None

    def narrow(self, profile: Spawn | None = None) -> Spawn | None:
        """Return what an agent that was spawned under these rules may spawn, `None` for nothing.

        Its profile may narrow the rules; without one, it may spawn what its superior may.
        """
        if self.levels == 1:
            return None
        return self.model_copy(update={"levels": self.levels - 1}).intersect(profile or self)

    def intersect(self, other: Spawn) -> Spawn | None:
        """Return what both these and other rules allow, `None` for nothing."""
        kinds: tuple[SpawnedKind, ...] = tuple(kind for kind in other.kinds if kind in self.kinds)
        if not kinds:
            return None
        return Spawn(
            kinds=kinds,
            profiles=tuple(name for name in other.profiles if name in self.profiles),
            tools=tuple(name for name in other.tools if name in self.tools),
            at_once=min(self.at_once, other.at_once),
            total=min(self.total, other.total),
            levels=min(self.levels, other.levels),
            # Middleware can be oversight, so neither side may leave it out.
            inherit_middleware=self.inherit_middleware or other.inherit_middleware,
        )

    def find_wider(self, other: Spawn) -> tuple[str, object] | None:
        """Return the field in which other rules allow more than these, with its value."""
        for field in ("kinds", "profiles", "tools"):
            for name in getattr(other, field):
                if name not in getattr(self, field):
                    return field, name
        for field in ("at_once", "total", "levels"):
            if getattr(other, field) > getattr(self, field):
                return field, getattr(other, field)
        return None


LOG = logging.getLogger(__name__)

Verdict: TypeAlias = Literal["allow", "ask", "deny"]
ApprovalRule: TypeAlias = Verdict | Callable[[Mapping[str, Any]], Verdict]
"""A verdict on each call, or a predicate that returns the verdict on one from its arguments."""

RulesByName: TypeAlias = Mapping[str, tuple[ApprovalRule, ...]]
"""The rules for each name on the path to an agent, from the root on."""

GrantedName: TypeAlias = Annotated[str, Field(min_length=1, max_length=1024)]
_HOST = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?(:\d+)?")

_RANKS: Final[Mapping[str, int]] = {"allow": 0, "ask": 2, "deny": 3}
_PREDICATE_RANK = 1


class ApprovalRules(Mapping[str, ApprovalRule]):
    """Rules by the name of a tool or subordinate. Immutable, and pickled like any object."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Mapping[str, ApprovalRule]) -> None:
        self._rules = dict(rules)

    def __getitem__(self, name: str) -> ApprovalRule:
        return self._rules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return repr(self._rules)


class Grant(NamedTuple):
    """The rights of an agent: tools, files and folders of the workspace, hosts; `None` for all."""

    tools: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    network: tuple[str, ...] | None = None

    def narrow(self, inner: Grant) -> Grant:
        """Return what both this grant and that of an agent below allow."""
        narrowed = (
            wide if narrow is None else narrow if wide is None else _intersect(field, wide, narrow)
            for field, wide, narrow in zip(self._fields, self, inner, strict=True)
        )
        return Grant(*narrowed)

    def allows_tool(self, name: str) -> bool:
        """Return whether a tool may be called."""
        return self.tools is None or name in self.tools

    def refuse_tool(self, name: str) -> str:
        """Return the answer to a call of a tool that is not allowed; empty for any other."""
        if self.allows_tool(name):
            return ""
        allowed = ", ".join(self.tools or ()) or "none"
        return f"Error: the tool {name!r} is not granted to you; granted are: {allowed}"

    def allows_path(self, path: str) -> bool:
        """Return whether a file or folder of the workspace may be reached.

        Examples:
            >>> Grant(paths=("docs",)).allows_path("docs/plan.md")
            True
            >>> Grant(paths=("docs",)).allows_path("docs.md")
            False
        """
        return self.paths is None or any(_covers("paths", name, path) for name in self.paths)

    def allows_host(self, host: str) -> bool:
        """Return whether a host may be reached.

        Examples:
            >>> Grant(network=("*.example.org",)).allows_host("api.example.org")
            True
            >>> Grant(network=("*.example.org",)).allows_host("example.org")
            False
        """
        return self.network is None or any(_covers("network", name, host) for name in self.network)


ALL_GRANTED: Final = Grant()
"""The grant of an agent that declares none."""


def find_wider(outer: Grant, inner: Grant) -> tuple[str, str] | None:
    """Return the field and the name that an inner grant has and the outer one has not, if any."""
    for field, outer_names, names in zip(outer._fields, outer, inner, strict=True):
        for name in (names or ()) if outer_names is not None else ():
            if not any(_covers(field, wide, name) for wide in outer_names or ()):
                return field, name
    return None


def _intersect(field: str, outer: tuple[str, ...], inner: tuple[str, ...]) -> tuple[str, ...]:
    common = [name for name in inner if any(_covers(field, wide, name) for wide in outer)]
    common += [name for name in outer if any(_covers(field, wide, name) for wide in inner)]
    return tuple(dict.fromkeys(common))


def _covers(field: str, wide: str, narrow: str) -> bool:
    """Return whether a granted name includes another."""
    if wide == narrow:
        return True
    if field == "paths":
        return wide == "." or narrow.startswith(f"{wide.rstrip('/')}/")
    return field == "network" and wide.startswith("*.") and narrow.endswith(wide[1:])


class Permissions(Settings):
    """The actions that an agent and all agents below it may take without a human.

    Each rule is for the calls of one tool, or the tasks of one subordinate, of the agent or of an
    agent below it. `"allow"` lets a call run, `"ask"` holds it until a human has approved it, and
    `"deny"` refuses it. A predicate decides by the arguments: those of the tool, or `message` and
    `context` of a task. It returns one of the three words; if it returns anything else, or fails,
    the call is asked about. It is called again when a run is resumed, so it should be quick and
    depend on the arguments alone.

    Of the rules on the path from the root to an agent, the strictest verdict holds. A subordinate's
    own rule may only narrow what its superiors have for the same name: of `"allow"`, a predicate,
    `"ask"` and `"deny"`, each is narrower than the ones before it.

    `tools`, `paths` and `network` grant the agent and all below it no more than they name; `None`
    grants what the superior has. A subordinate's own are a part of its superior's.

    Attributes:
        approvals: The rules by the name of a tool or subordinate.
        tools: Names of the tools that may be called, beside the library's own.
        paths: Files and folders of the workspace that file tools may reach, such as `"docs"`; `"."`
            for all.
        network: Hosts that `http_get` may reach, such as `"example.org"`, and `"*.example.org"` for
            those below it.
        contact_user: Whether the agent may ask the user past its superior, with `ask`.
            This is for the agent alone, and not for those below it.
        spawn: Which subordinates it may make at run time; none by default. A subordinate's own may
            only narrow what its superior has, if that has any.
        budget: The most that it may spend on one request, with all below it; a root, in one turn.
            `None` for what its superior has.

    Raises:
        InvalidSetting: A rule is neither a verdict nor a predicate, a predicate is asynchronous, or
            a setting has an unknown name.

    Examples:
        >>> def ask_from_100(arguments):
        ...     return "ask" if arguments["amount"] >= 100 else "allow"
        >>> permissions = Permissions(approvals={"pay": ask_from_100, "drop_table": "deny"})
        >>> permissions.approvals["drop_table"]
        'deny'
    """

    approvals: Mapping[str, ApprovalRule] = Field(default_factory=lambda: ApprovalRules({}))
    contact_user: StrictBool = False
    spawn: Spawn | None = None
    budget: Budget | None = None
    tools: tuple[GrantedName, ...] | None = None
    paths: tuple[GrantedName, ...] | None = None
    network: tuple[GrantedName, ...] | None = None

    @field_validator("tools", "paths", "network", mode="before")
    @classmethod
    def _refuse_text(cls, value: Any) -> Any:
        # Pydantic takes a text for a list of its letters.
        if not (value is None or isinstance(value, list | tuple)):
            raise ValueError("give a list of names")
        return value

    @field_validator("budget")
    @classmethod
    def _check_budget(cls, budget: Budget | None) -> Budget | None:
        if budget and budget.fault:
            raise ValueError(budget.fault)
        return budget

    @field_validator("paths")
    @classmethod
    def _check_paths(cls, paths: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for path in paths or ():
            if path.startswith("/") or "\\" in path or ".." in path.split("/"):
                raise ValueError(f"{path!r} is no path below the workspace")
        return paths

    @field_validator("network")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for host in hosts or ():
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r} is no host; give one such as 'example.org'")
        return hosts

    @property
    def grant(self) -> Grant:
        """Its grants of tools, paths and hosts."""
        return Grant(self.tools, self.paths, self.network)

    @field_validator("approvals", mode="plain")
    @classmethod
    def _check_approvals(cls, rules: Any) -> ApprovalRules:
        if isinstance(rules, ApprovalRules):
            return rules
        if not isinstance(rules, Mapping):
            why = "give a mapping from the name of a tool or subordinate to its rule"
            raise InvalidSetting(cls.__name__, "approvals", rules, why)
        for name, rule in rules.items():
            if why := _find_fault(name, rule):
                raise InvalidSetting(cls.__name__, f"approvals[{shorten_repr(name)}]", rule, why)
        return ApprovalRules(rules)


NO_PERMISSIONS: Final = Permissions()
"""The permissions of an agent that declares none: it adds nothing to its superiors' rules."""


def extend_rules(inherited: RulesByName, permissions: Permissions) -> RulesByName:
    """Return the rules that hold for an agent: those of its superiors and its own, but `"allow"`.

    Examples:
        >>> extend_rules({"pay": ("ask",)}, Permissions(approvals={"pay": "deny", "look": "allow"}))
        {'pay': ('ask', 'deny')}
    """
    if permissions is NO_PERMISSIONS:
        return inherited
    rules = dict(inherited)
    for name, rule in permissions.approvals.items():
        if rule != "allow":
            rules[name] = (*rules.get(name, ()), rule)
    return rules


def rank_rule(rule: ApprovalRule) -> int:
    """Return how strict a rule is; a predicate is stricter than `"allow"`."""
    return _RANKS[rule] if isinstance(rule, str) else _PREDICATE_RANK


def describe_rule(rule: ApprovalRule) -> str:
    """Return a rule for a message."""
    return repr(rule) if isinstance(rule, str) else "a predicate"


def judge_call(rules: Iterable[ApprovalRule], name: str, arguments: Mapping[str, Any]) -> Verdict:
    """Return the strictest verdict of some rules on a call; the name is for the log.

    Examples:
        >>> judge_call(["allow", lambda arguments: "ask"], "pay", {"amount": 7})
        'ask'
    """
    strictest: Verdict = "allow"
    for rule in rules:
        verdict = _apply_predicate(rule, name, arguments) if callable(rule) else rule
        if _RANKS[verdict] > _RANKS[strictest]:
            strictest = verdict
    return strictest


def _apply_predicate(
    predicate: Callable[[Mapping[str, Any]], Verdict], name: str, arguments: Mapping[str, Any]
) -> Verdict:
    try:
        # A copy: what it changes must not reach the tool.
        verdict: Any = predicate(deepcopy(dict(arguments)))
    except Exception as error:  # noqa: BLE001  foreign code: if it fails, a human decides
        LOG.warning("the predicate for %r failed: %s", name, describe_error(error))
        return "ask"
    if isinstance(verdict, str) and verdict in _RANKS:
        return cast("Verdict", verdict)
    if inspect.iscoroutine(verdict):
        verdict.close()
    LOG.warning("the predicate for %r returned %s", name, shorten_repr(verdict))
    return "ask"


def _find_fault(name: object, rule: object) -> str:
    """Return what is wrong with a rule; empty if nothing is."""
    if not isinstance(name, str) or not name:
        return "a rule is for the name of a tool or subordinate"
    if isinstance(rule, str):
        return "" if rule in _RANKS else "give 'allow', 'ask', 'deny' or a predicate"
    if not callable(rule) or isinstance(rule, type):
        return "give 'allow', 'ask', 'deny' or a function from the arguments to one of these"
    # An object of a class with an `async def __call__` is asynchronous, too.
    for function in (rule, type(rule).__call__):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return "a predicate is not asynchronous; let it decide by the arguments alone"
    return ""
