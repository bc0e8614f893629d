"""`Summaries`: what an agent's model reads in place of the older part of its conversation. Pure.

They have tiers: a topic for each turn; of many topics a paragraph; of several paragraphs one. What
makes a short text of a long one is a step of a plan, as a model may have to be asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from pydantic import TypeAdapter, ValidationError

from echelons.errors import UnreadableRecord

TOPICS = 8
"""Topics from which a paragraph is made."""
PARAGRAPHS = 4
"""Paragraphs from which one is made."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"\w{4,}")


class SummaryRequest(NamedTuple):
    """A text to be summarised."""

    text: str
    limit: int


SummaryPlan = Generator[SummaryRequest, str, "Summaries"]


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

    def plan_fold(
        self, turns: Sequence[str], upto: str, count: int, pins: Sequence[str], share: int
    ) -> SummaryPlan:
        """Take up further turns, the oldest first, and return the new summaries."""
        topics, paragraphs = list(self.topics), list(self.paragraphs)
        for turn in turns:
            # Of a turn an extract is enough: a model is asked about many of them at once.
            topics.append(extract_summary(turn, share // (3 * TOPICS)))
            if len(topics) > TOPICS:
                text = "\n".join(topics)
                paragraphs.append((yield SummaryRequest(text, share // (2 * PARAGRAPHS + 2))))
                topics.clear()
            if len(paragraphs) > PARAGRAPHS:
                text = "\n".join(paragraphs)
                paragraphs = [(yield SummaryRequest(text, share // (2 * PARAGRAPHS + 2)))]
        return replace(
            self,
            upto=upto,
            count=self.count + count,
            topics=tuple(topics),
            paragraphs=tuple(paragraphs),
            pins=(*self.pins, *pins),
        )

    def render(self) -> str:
        """Return the summaries as a text, one line for each; empty if there are none."""
        return "\n".join((*self.paragraphs, *(f"- {topic}" for topic in self.topics)))


def extract_summary(text: str, limit: int) -> str:
    r"""Return the sentences of a text that say most of what it repeats, in their order.

    The first sentence, and the first of the last line, come before all others: they are the task
    and the answer. The others are rated by how often their words occur in the text (Luhn, 1958).

    Examples:
        >>> extract_summary("Find hotels in Rome. Be quick.\nI looked.\nBook the Roma.", 40)
        'Find hotels in Rome. Book the Roma.'
    """
    whole = " ".join(text.split())
    if len(whole) <= limit:
        return whole
    lines = [each for each in text.splitlines() if each.strip()]
    parts = [_SENTENCE.split(" ".join(line.split())) for line in lines]
    sentences = list(dict.fromkeys(each for line in parts for each in line))
    counts = Counter(_WORD.findall(whole.lower()))

    def rate(sentence: str) -> tuple[bool, float]:
        words = _WORD.findall(sentence.lower())
        said = sum(counts[word] for word in words) / (len(words) or 1)
        return sentence in (parts[0][0], parts[-1][0]), said

    kept: set[str] = set()
    left = limit
    for sentence in sorted(sentences, key=rate, reverse=True):
        if len(sentence) + 1 <= left:
            kept.add(sentence)
            left -= len(sentence) + 1
    if not kept:
        return f"{whole[: max(0, limit - 1)]}…"
    return " ".join(each for each in sentences if each in kept)
