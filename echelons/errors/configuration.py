"""Errors of agents, trees and models that cannot work, raised before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


class ConfigurationError(EchelonsError):
    """An agent or a tree has an invalid configuration; raised at construction."""


class PermissionsWidened(ConfigurationError, ValueError):
    """An agent may do more than one of its superiors: by a rule, or by what it is granted.

    Attributes:
        agent: Path of the agent, from the superior on.
        superior: The superior.
        name: The tool or subordinate that both rules are for; `tools`, `paths` or `network`; or a
            setting of `Spawn`, such as `spawn.levels`.
        rule: The agent's rule, or what it is granted.
        limit: The superior's.
    """

    code = "permissions_widened"

    def __init__(self, agent: str, superior: str, name: str, rule: str, limit: str) -> None:
        super().__init__(
            "{agent!r} has {rule} for {name!r}, and {superior!r} above it has {limit}; an agent "
            "can only narrow what its superiors allow (of rules 'allow', a predicate, 'ask', "
            "'deny'): leave it out, or make it as strict",
            agent=agent,
            superior=superior,
            name=name,
            rule=rule,
            limit=limit,
        )


class InvalidSetting(ConfigurationError, ValueError):
    """A limit, a policy or another object is made with an invalid value, or an unknown name.

    Attributes:
        owner: The object that was to be made.
        setting: The name of the value.
        value: The refused value.
        why: The fault, and what to give.
    """

    code = "invalid_setting"

    def __init__(self, owner: str, setting: str, value: object, why: str) -> None:
        super().__init__(
            "{owner}({setting}={value:short}): {why}",
            owner=owner,
            setting=setting,
            value=value,
            why=why,
        )


class EventLoopMissing(ConfigurationError):
    """A tree with parts that are only async runs synchronously, and not in a session.

    Attributes:
        parts: These tools and subordinates, with their paths.
    """

    code = "event_loop_missing"

    def __init__(self, parts: Sequence[str]) -> None:
        super().__init__(
            "these can only run in an event loop, and a synchronous run of a compiled graph has "
            "none: {parts}; run it with ainvoke or astream, or in a Session, which has a loop "
            "for them",
            parts=tuple(parts),
        )


class SessionNeeded(ConfigurationError):
    """A tree with monitors runs outside of a `Session`, which drives them.

    Attributes:
        monitors: Paths of the monitors.
    """

    code = "session_needed"

    def __init__(self, monitors: Sequence[str]) -> None:
        super().__init__(
            "these monitors work beside the turns of a Session alone, and this is a run of a "
            "compiled graph: {monitors}; run the tree in a Session, or leave them out. Nothing "
            "was run",
            monitors=tuple(monitors),
        )


class ModelError(EchelonsError):
    """A model cannot be used as requested."""


class McpServerFailed(EchelonsError):
    """An MCP server cannot be used: it does not start or answer, or lists a tool that has a fault.

    Attributes:
        server: Its name.
        reason: The fault.
    """

    code = "mcp_server_failed"

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(
            "the MCP server {server!r} cannot be used: {reason}",
            server=server,
            reason=reason,
        )


def invalid_name(name: object, why: str = "") -> ConfigurationError:
    """Return the error of a name that is none of an agent or a tool."""
    return ConfigurationError(
        f"{{name!r}} is no valid agent name{' ({why})' if why else ''}; use a letter, then up to "
        "63 letters, digits, '-' or '_', and none of the names of the level's own nodes",
        code="invalid_name",
        name=name,
        why=why,
    )


def duplicate_name(name: str, places: Sequence[str]) -> ConfigurationError:
    """Return the error of a name that is used twice in a tree, or by tools of one agent."""
    return ConfigurationError(
        "the name {name!r} stands more than once ({places}); names are unique in a tree: rename "
        "one of them",
        code="duplicate_name",
        name=name,
        places=tuple(places),
    )


def unknown_tool(agent: str, tool: object, why: str = "") -> ConfigurationError:
    """Return the error of what is no tool, or, with `why`, of a rule for one that is not there."""
    text = (
        "agent {agent!r}: {tool!r} is no tool; pass a LangChain tool, a function with a name and "
        "a docstring, or a dict of a tool that the model's provider runs"
    )
    if why:
        text = "agent {agent!r} has a rule for {tool!r}: {why}"
    return ConfigurationError(text, code="unknown_tool", agent=agent, tool=tool, why=why)


def invalid_subordinate(superior: str, subordinate: object, why: str) -> ConfigurationError:
    """Return the error of what cannot run as a subordinate."""
    place = "agent {superior!r}: " if superior else ""
    return ConfigurationError(
        f"{place}{{subordinate!r}} is no subordinate: {{why}}",
        code="invalid_subordinate",
        superior=superior,
        subordinate=subordinate,
        why=why,
    )


def invalid_field(agent: str, field: str, value: object, expected: str) -> ConfigurationError:
    """Return the error of an invalid value of a field of an agent."""
    return ConfigurationError(
        "agent {agent!r}: {field}={value!r}; pass a value of type {expected}, or leave it out",
        code="invalid_field",
        agent=agent,
        field=field,
        value=value,
        expected=expected,
    )


def middleware_failed(agent: str, middleware: str, hook: str, why: str) -> ConfigurationError:
    """Return the error of a middleware that raised, or did what none can do."""
    return ConfigurationError(
        "{hook} of the middleware {middleware!r} of {agent!r} failed: {why}; mend it, or take it "
        "out, and resume the turn",
        code="middleware_failed",
        agent=agent,
        middleware=middleware,
        hook=hook,
        why=why,
    )


def invalid_tool(agent: str, tool: str, why: str) -> ConfigurationError:
    """Return the error of a tool that cannot be shown to a model."""
    return ConfigurationError(
        "the tool {tool!r} of {agent}: {why}",
        code="invalid_tool",
        agent=agent,
        tool=tool,
        why=why,
    )


def invalid_database(given: object) -> ConfigurationError:
    """Return the error of what is neither a path nor a LangGraph saver."""
    return ConfigurationError(
        "{given!r} is no database; pass a LangGraph saver, the path of a SQLite database, or "
        "':memory:' to keep nothing",
        code="invalid_database",
        given=given,
    )


def model_cannot_call(agent: str, model: str) -> ModelError:
    """Return the error of a model without tool calls for an agent that makes some."""
    return ModelError(
        "agent {agent!r} has tools or subordinates, and its model {model} cannot call any; give "
        "the agent a model with bind_tools, or take its tools and subordinates away",
        code="model_cannot_call",
        agent=agent,
        model=model,
    )
