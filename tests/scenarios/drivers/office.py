"""A head with a clerk whose mails are approved, and a guide who asks the user."""

from __future__ import annotations

from pathlib import Path

from echelons import Agent, Permissions
from echelons.testing import Call, ScriptedModel, delegate
from tests.scenarios.drivers.expedition import Log

CLERK, GUIDE = "head/clerk", "head/guide"


def build_office(path: Path) -> Agent:
    """Return the tree; each mail is a line of a file."""
    log = Log(path)

    def mail(to: str) -> str:
        """Send a mail."""
        log.write(f"mail to {to}")
        return "sent"

    model = ScriptedModel(
        {
            "head": lambda messages: (
                [delegate("clerk", "go"), delegate("guide", "go")] if len(messages) == 1 else "over"
            ),
            "clerk": lambda messages: (
                Call("mail", {"to": "bob"}) if len(messages) == 1 else "written"
            ),
            "guide": lambda messages: (
                Call("ask_user", {"question": "Which way?"}) if len(messages) == 1 else "found"
            ),
        }
    )
    guide = Agent("guide", permissions=Permissions(contact_user=True))
    below = [Agent("clerk", tools=[mail]), guide]
    permissions = Permissions(approvals={"mail": "ask"})
    return Agent("head", guidance="", model=model, subordinates=below, permissions=permissions)
