"""Names of agents: what is allowed, what is taken. ``Agent`` and ``members`` call this."""

from __future__ import annotations

import re

from echelons.errors import InvalidName

PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""A name is a LangGraph node, a part of a namespace and a provider's message name."""

RESERVED = frozenset({"reason", "act", "delegate", "refuse", "dispatch", "run"})
"""Nodes that a level or a delegation graph has by itself."""

PATH_SEPARATOR = "/"

CALL_SUBORDINATE = "call_subordinate"
DELEGATE_MANY = "delegate_many"
REPORT = "report"
DELEGATING_TOOLS = frozenset({CALL_SUBORDINATE, DELEGATE_MANY})
"""Tools with which a level asks its subordinates."""
BUILT_IN_TOOLS = DELEGATING_TOOLS | {REPORT}
"""Tools that a level may have by itself."""


def check_name(name: object) -> str:
    """Return ``name`` if it is a valid agent name.

    Raises:
        InvalidName: It is no text, has other characters than letters, digits, ``-`` and
            ``_``, does not begin with a letter, is longer than 64, or is reserved.

    Examples:
        >>> check_name("restaurants")
        'restaurants'
    """
    if not isinstance(name, str) or not PATTERN.fullmatch(name):
        raise InvalidName(name)
    if name in RESERVED:
        raise InvalidName(name, "a node of every level is called so")
    return name
