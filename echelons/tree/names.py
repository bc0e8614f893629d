"""The rules for agent names, and the reserved names of nodes and tools."""

from __future__ import annotations

import re

from echelons.errors import InvalidName
from echelons.text.input_limits import read_text

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
ASK_SUPERIOR = "ask_superior"
ASK_USER = "ask_user"
ASK_LATER = "ask_later"
SEND_MESSAGE = "send_message"
DELEGATING_TOOLS = frozenset({CALL_SUBORDINATE, DELEGATE_MANY})
"""Built-in tools with which an agent calls its subordinates."""
BUILT_IN_TOOLS = DELEGATING_TOOLS | {
    REPORT,
    ASK_SUPERIOR,
    ASK_USER,
    ASK_LATER,
    SEND_MESSAGE,
}
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
    text = read_text(name)
    if text is None or not NAME_PATTERN.fullmatch(text):
        raise InvalidName(name)
    if text in RESERVED_NAMES:
        raise InvalidName(name, "a node of every level is called so")
    return text
