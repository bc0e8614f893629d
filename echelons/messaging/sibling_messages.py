"""The rule of a superior about messages between its subordinates: copy, hold or refuse."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

LOG = logging.getLogger(__name__)

SiblingDecision: TypeAlias = Literal["copy", "hold", "refuse"]
"""What becomes of a message: delivered, with a copy for the superior's model; shown to the
superior's model alone; or refused."""


@dataclass(frozen=True, slots=True)
class SiblingMessage:
    """A message from one subordinate of an agent to another.

    Attributes:
        sender: Name of the one that sends it.
        receiver: Name of the one that it is for.
        text: Its content.
    """

    sender: str
    receiver: str
    text: str


SiblingRule: TypeAlias = SiblingDecision | Callable[[SiblingMessage], SiblingDecision]
"""A decision about all messages, or a function that decides about each."""


def decide_message(rule: SiblingRule, message: SiblingMessage) -> SiblingDecision:
    """Return the decision about a message; a function that fails holds it.

    Examples:
        >>> decide_message(lambda each: "refuse", SiblingMessage("a", "b", "Hello."))
        'refuse'
    """
    if not callable(rule):
        return rule
    try:
        decision: object = rule(message)
    except Exception as error:  # noqa: BLE001  it is the user's, and no reason to lose the message
        LOG.warning("the rule sibling_messages failed, so the message is held: %r", error)
        return "hold"
    if decision in get_args(SiblingDecision):
        return cast("SiblingDecision", decision)
    LOG.warning("the rule sibling_messages returned %r, so the message is held", decision)
    return "hold"
