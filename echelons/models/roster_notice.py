"""A notice of subordinates that have come or gone, as a message. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from langchain_core.messages import BaseMessage, HumanMessage

from echelons.delegation.roster import (
    Changes,
    RosterEntry,
    describe_changes,
    read_whole_roster,
)
from echelons.identity.lineage import MAIL_KEY, ROSTER_KEY
from echelons.messaging.mail import Mail, render_mail


def build_roster_notice(changes: Changes, id: str = "") -> BaseMessage:
    """Return a notice that tells an agent of subordinates which have come or gone."""
    noted = Mail(0, "", "", "", "notice").to_metadata()
    stored = {name: entry and entry.stored() for name, entry in changes.items()}
    return HumanMessage(
        render_mail("", describe_changes(changes), "notice"),
        id=id or None,
        response_metadata={MAIL_KEY: noted, ROSTER_KEY: stored},
    )


def list_lost_notices(
    messages: Sequence[BaseMessage], shown: Sequence[BaseMessage]
) -> list[BaseMessage]:
    """Return a notice of what some messages tell and those that are shown of them do not."""
    if not (roster := read_whole_roster(messages)):
        return []
    left = read_whole_roster(shown)
    lost = {name: entry for name, entry in roster.items() if left.get(name) != entry}
    return [recall_roster((*lost.items(),))] if lost else []


@lru_cache(maxsize=64)
def recall_roster(roster: tuple[tuple[str, RosterEntry], ...]) -> BaseMessage:
    """Return a notice of what earlier messages have told, the same message for the same roster."""
    return build_roster_notice(dict(roster))
