"""`MailFeature`: messages between agents, and from the user."""

from __future__ import annotations

from typing import ClassVar

from echelons.features.feature import AgentHooks, Feature, Place
from echelons.features.mail.tools import SendMessage
from echelons.tree.names import SEND_MESSAGE


class MailHooks(AgentHooks):
    """The mail of one agent.

    Args:
        place: The agent at its place.
    """

    def __init__(self, place: Place) -> None:
        if place.can_call:
            is_needed = place.reports and SEND_MESSAGE in place.upward_tools
            self.tools = (SendMessage(place.siblings, is_needed=is_needed),)


class MailFeature(Feature):
    """Messages to agents."""

    name: ClassVar[str] = "mail"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the mail of an agent."""
        return MailHooks(place)


FEATURE = MailFeature()
