"""The rules for agent names, and the reserved names of nodes and tools."""

from __future__ import annotations

import re

from echelons.errors import InvalidName

NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""Valid as a LangGraph node, a part of a namespace, and a message name for providers."""

RUN = "run"
"""Name of the only node of a level without an agent."""
RESERVED_NAMES = frozenset({"reason", "act", "delegate", "refuse", "dispatch", RUN})
"""Names of the nodes of every level and delegation graph."""

PATH_SEPARATOR = "/"

CALL_SUBORDINATE = "call_subordinate"
DELEGATE_MANY = "delegate_many"
REPORT = "report"
DELEGATING_TOOLS = frozenset({CALL_SUBORDINATE, DELEGATE_MANY})
"""Built-in tools with which an agent calls its subordinates."""
BUILT_IN_TOOLS = DELEGATING_TOOLS | {REPORT}
"""Tools that Echelons adds to an agent's own."""


def check_name(name: object) -> str:
    """Return `name` if it is a valid agent name.

    Raises:
        InvalidName: It is not a string, has characters other than letters, digits, `-` and
            `_`, does not begin with a letter, is longer than 64 characters, or is reserved.

    Examples:
        >>> check_name("restaurants")
        'restaurants'
    """
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        raise InvalidName(name)
    if name in RESERVED_NAMES:
        raise InvalidName(name, "a node of every level is called so")
    return name
