"""The rules for agent names, and the reserved names of nodes and tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from echelons.errors import invalid_name

NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""Valid as a LangGraph node, a part of a namespace, and a message name for providers."""

RUN = "run"
"""Name of the only node of a level without an agent."""
RESERVED_NAMES = frozenset({"reason", "act", "delegate", "refuse", "dispatch", RUN})
"""Names of the nodes of every level and delegation graph."""

PRIVATE_KEYS = frozenset({
    "cut", "forward", "heads", "jump_to", "notice_mark", "parts", "previous", "replied", "request",
    "response", "unhooked",
})  # fmt: skip
"""Keys of a level's state that no tool and no middleware may write."""

PATH_SEPARATOR = "/"

CALL_SUBORDINATE = "call_subordinate"
DELEGATE_MANY = "delegate_many"
SPAWN_SUBORDINATE = "spawn_subordinate"
DISMISS_SUBORDINATE = "dismiss_subordinate"
REPORT = "report"
ASK = "ask"
ASK_SUPERIOR = "ask_superior"
ASK_USER = "ask_user"
ASK_LATER = "ask_later"
SEND_MESSAGE = "send_message"
RECALL = "recall"
PIN = "pin"
READ_RESULT = "read_result"
DELEGATING_TOOLS = frozenset({CALL_SUBORDINATE, DELEGATE_MANY, SPAWN_SUBORDINATE})
"""Built-in tools with which an agent calls its subordinates, or makes one and calls it."""
SHOWN_TOOLS = (
    CALL_SUBORDINATE,
    DELEGATE_MANY,
    SPAWN_SUBORDINATE,
    DISMISS_SUBORDINATE,
    REPORT,
    ASK,
    SEND_MESSAGE,
    RECALL,
    PIN,
)
"""Built-in tools that an agent can be shown, in their order."""
MAX_TOOLS = 128
"""Tools of a request that OpenAI and Azure take."""
EARLIER_TOOLS = frozenset({ASK_SUPERIOR, ASK_USER, ASK_LATER})
"""Earlier names of `ask`: stored threads have them, and calls of them are still understood."""
BUILT_IN_TOOLS = EARLIER_TOOLS.union(SHOWN_TOOLS, {READ_RESULT})
"""Tools that Echelons adds to an agent's own."""
RESERVED_TOOLS = BUILT_IN_TOOLS - {ASK}
"""Names that no tool of an agent may have. Many have a tool called `ask`: such an agent keeps it,
and is not shown the library's."""


_FUNCTION_KEYS = frozenset(
    {"function", "parameters", "properties", "input_schema", "function_declarations"}
)


def get_shown_tool_name(tool: Any) -> str:
    """Return the name under which an agent's model knows a tool."""
    return str(get_provider_tool_name(tool) or getattr(tool, "name", None) or tool.__name__)


def get_provider_tool_name(tool: object) -> str:
    """Return the name of a dict that is a tool of a model's provider; empty for anything else.

    A dict that describes a function is none: there would be nothing to run.

    Examples:
        >>> get_provider_tool_name({"type": "web_search_20250305", "name": "web_search"})
        'web_search'
        >>> get_provider_tool_name({"google_search": {}})
        'google_search'
        >>> get_provider_tool_name({"type": "function", "name": "search"})
        ''
    """
    if not isinstance(tool, Mapping) or not _FUNCTION_KEYS.isdisjoint(tool):
        return ""
    if tool.get("type") == "function":
        return ""
    only = next(iter(tool)) if len(tool) == 1 else None
    name = tool.get("name") or tool.get("type") or only
    return name if isinstance(name, str) else ""


def check_name(name: object) -> str:
    """Return `name` if it is a valid agent name; raise `ConfigurationError` if it is not.

    Examples:
        >>> check_name("restaurants")
        'restaurants'
    """
    match = NAME_PATTERN.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise invalid_name(name)
    if match[0] in RESERVED_NAMES:
        raise invalid_name(name, "a node of every level is called so")
    return match[0]  # a plain string, also of a member of an enumeration
