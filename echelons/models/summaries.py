"""`Summaries`: what replies keep of the messages before them that a model reads no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from langchain_core.messages import BaseMessage
from pydantic import TypeAdapter, ValidationError

from echelons.errors import UnreadableRecord
from echelons.identity.lineage import PROMPT_KEY


@dataclass(frozen=True, slots=True)
class Summaries:
    """The summaries of a thread, and what is pinned."""

    # The id of the last message that they cover; empty if there are none.
    upto: str = ""
    # How many messages they cover.
    count: int = 0
    # The latest turns among those, oldest first.
    topics: tuple[str, ...] = ()
    # Those before, oldest first.
    paragraphs: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    # Which subordinates came or went in what they cover, by name.
    roster: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def stored(self) -> dict[str, Any]:
        """Return them as JSON."""
        roster = {name: [*topic] for name, topic in self.roster.items()}
        return {
            "upto": self.upto,
            "count": self.count,
            "topics": list(self.topics),
            "paragraphs": list(self.paragraphs),
            "pins": list(self.pins),
            **({"roster": roster} if roster else {}),
        }

    @classmethod
    def load(cls, stored: object) -> Self:
        """Return the summaries from the JSON of `stored`, without the fields of a newer version.

        Raises:
            UnreadableRecord: They are damaged.
        """
        try:
            return TypeAdapter(cls).validate_python(stored, extra="ignore")
        except ValidationError as error:
            raise UnreadableRecord(cls.__name__, str(error)) from error

    def render(self) -> str:
        """Return the summaries as a text, one line for each; empty if there are none."""
        return "\n".join((*self.paragraphs, *(f"- {topic}" for topic in self.topics)))


def find_summaries(messages: Sequence[BaseMessage]) -> Summaries:
    """Return the latest summaries of a conversation, which stand in a reply.

    They are near: what is behind the messages that they cover fits into a prompt.

    Raises:
        UnreadableRecord: They are damaged.
    """
    for message in reversed(messages):
        stored = message.response_metadata.get(PROMPT_KEY)
        # A reply before which nothing was summarised only counts the tokens read.
        if stored is not None and not (isinstance(stored, dict) and "upto" not in stored):
            return Summaries.load(stored)
    return Summaries()


def find_window(messages: Sequence[BaseMessage], summaries: Summaries) -> int:
    """Return the place of the first message that no summary covers.

    A pruned or a cut conversation has fewer messages than were covered.
    """
    end = summaries.count
    if 0 < end <= len(messages) and messages[end - 1].id == summaries.upto:
        return end
    if not summaries.upto:
        return 0
    places = range(len(messages) - 1, -1, -1)
    return next((place + 1 for place in places if messages[place].id == summaries.upto), 0)
