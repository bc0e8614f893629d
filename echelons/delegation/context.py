"""`DelegationContext`: what a subordinate is told of its superior's work, beside its task. Pure.

A subordinate never sees its superior's conversation. A policy may give it a condensed view: recent
events in a line each, what to be careful about, a preview. It becomes facts of the request's
context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from echelons.settings import Settings

CHARACTERS_PER_TOKEN = 4
"""Source: LangChain's `count_tokens_approximately`."""
MAX_EVENT = 200  # characters


class DelegationContext(BaseModel):
    """What a subordinate is told of its superior's work.

    Attributes:
        payload: The fields of the input that the subordinate is given; `None` for a task in words.
            It is for a function that condenses; the subordinate has it in its task.
        recent_events: What the superior was told, said and did lately, oldest first, a line each.
        workspace: Where the subordinate's own files are in the workspace of the session, if it has
            one; its superior sees them.
        safety_flags: What to be careful about, by name.
        preview: A text about what the task is a part of.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    payload: dict[str, Any] | None = None
    recent_events: tuple[str, ...] = ()
    workspace: tuple[str, ...] = ()
    safety_flags: tuple[str, ...] = ()
    preview: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that it adds to the context of a request; without what is empty."""
        facts = {
            "preview": self.preview,
            "safety flags": list(self.safety_flags),
            "workspace": list(self.workspace),
            "recent events": list(self.recent_events),
        }
        return {name: fact for name, fact in facts.items() if fact}

    def count_tokens(self) -> int:
        """Return about how many tokens its facts have."""
        return -(-sum(map(len, map(str, self.facts.values()))) // CHARACTERS_PER_TOKEN)


Condense: TypeAlias = Callable[[DelegationContext], DelegationContext]
"""Returns what of a context a subordinate is told."""


class ContextPolicy(Settings):
    """How much of its work a superior tells its subordinates.

    What does not fit is left out: events from the oldest on, then the preview from its end. Flags
    are never left out.

    Attributes:
        tokens: Most tokens of what is told, four characters each.
        events: Most recent events.
        safety_flags: What all subordinates are to be careful about.
        preview: Whether they are told the superior's own task.

    Examples:
        >>> told = ContextPolicy(tokens=6, events=2).condense(
        ...     DelegationContext(recent_events=("user: old", "user: new", "head: looked it up"))
        ... )
        >>> told.recent_events
        ('head: looked it up',)
    """

    tokens: Annotated[int, Field(ge=1, le=16_000)] = 500
    events: Annotated[int, Field(ge=0, le=100)] = 8
    safety_flags: tuple[Annotated[str, Field(min_length=1, max_length=MAX_EVENT)], ...] = ()
    preview: StrictBool = False

    def condense(self, context: DelegationContext) -> DelegationContext:
        """Return what of a context a subordinate is told."""
        short = context.model_copy(
            update={
                "recent_events": context.recent_events[-self.events :] if self.events else (),
                "safety_flags": (*self.safety_flags, *context.safety_flags),
                "preview": context.preview if self.preview else "",
            }
        )
        while short.recent_events and short.count_tokens() > self.tokens:
            short = short.model_copy(update={"recent_events": short.recent_events[1:]})
        excess = max(short.count_tokens() - self.tokens, 0) * CHARACTERS_PER_TOKEN
        length = max(len(short.preview) - excess, 0)
        return short.model_copy(update={"preview": short.preview[:length]})


def read_condensed(condensed: Any) -> Mapping[str, Any]:
    """Return the facts of what a function has condensed; raise `TypeError` if it is no context."""
    if not isinstance(condensed, DelegationContext):
        raise TypeError(f"it returned {type(condensed).__name__}, and not a DelegationContext")
    return condensed.facts
