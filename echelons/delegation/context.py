"""`DelegationContext`: the part of a superior's work that its subordinate sees beside its task.

A subordinate never sees its superior's conversation. A policy may give it a condensed view: recent
events in a line each, what to be careful about, a preview. It becomes facts of the request's
context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from echelons.run_context import get_context
from echelons.settings import Settings
from echelons.tree.names import PATH_SEPARATOR

CHARACTERS_PER_TOKEN = 4
"""Source: LangChain's `count_tokens_approximately`."""
MAX_EVENT = 200  # characters
PRIVATE_FOLDER: Final = "subagents"
"""The folder with the agents' own folders, which are named after their paths."""


class DelegationContext(BaseModel):
    """The part of a superior's work that its subordinate sees.

    Attributes:
        payload: The fields of the input that the subordinate is given; `None` for a task in words.
            It is for a function that condenses; the subordinate has it in its task.
        recent_events: Latest messages and actions of the superior, oldest first, a line each.
        workspace: The subordinate's folders in the workspace of the session, if it has one; its
            superior sees them.
        safety_flags: Names of what to be careful about.
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


def build_context(
    path: Sequence[str], config: Mapping[str, Any], **fields: Any
) -> DelegationContext:
    """Return the whole context of a task, before it is condensed.

    Args:
        path: The path of its subordinate; empty if that is not known yet.
        config: The config of the superior.
        fields: The other fields of the context.
    """
    has_folder = path and "workspace" in get_context(config).features
    folders = (f"{PRIVATE_FOLDER}/{PATH_SEPARATOR.join(path)}/",) if has_folder else ()
    return DelegationContext(workspace=folders, **fields)


Condense: TypeAlias = Callable[[DelegationContext], DelegationContext]
"""Returns the part of a context that a subordinate sees."""


class ContextPolicy(Settings):
    """How much of a superior's work its subordinates see.

    The context is cut to fit: events from the oldest on, then the preview from its end. Flags
    are never left out.

    Attributes:
        tokens: Most tokens of the context, four characters each.
        events: Most recent events.
        safety_flags: Flags for all subordinates.
        preview: Whether they see the superior's own task.

    Examples:
        >>> short = ContextPolicy(tokens=6, events=2).condense(
        ...     DelegationContext(recent_events=("user: old", "user: new", "head: looked it up"))
        ... )
        >>> short.recent_events
        ('head: looked it up',)
    """

    tokens: Annotated[int, Field(ge=1, le=16_000)] = 500
    events: Annotated[int, Field(ge=0, le=100)] = 8
    safety_flags: tuple[Annotated[str, Field(min_length=1, max_length=MAX_EVENT)], ...] = ()
    preview: StrictBool = False

    def condense(self, context: DelegationContext) -> DelegationContext:
        """Return the part of a context that a subordinate sees."""
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
