"""What a tool does in the world: how it is declared, and the journal that is kept of it.

``act`` asks the ``Journal`` before it carries out a call; ``checkpoints`` implement
it. A call is known by its task and its id: a resumed run makes the same call, a fork another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import uuid5

from echelons.errors import NoCall
from echelons.identity.lineage import ECHELONS_NS
from echelons.text.sanitize import mend

IDEMPOTENCY_KEY = "idempotency_key"
"""Where the config of a call holds its key."""
_MARK = "echelons_effect"

F = TypeVar("F")


class Nature(StrEnum):
    """What it does to the world to carry out a call twice."""

    ONCE = "once"
    IDEMPOTENT = "idempotent"
    READS_ONLY = "reads_only"


def effect(*, idempotent: bool = False, reads_only: bool = False) -> Callable[[F], F]:
    """Declare what a tool or a function does in the world.

    Without it, a call that was cut short is never made again before a human has said whether
    it happened. Put it above or below ``@tool``.

    Args:
        idempotent: Made twice with the same ``idempotency_key``, a call has one effect. It is
            made again after a crash.
        reads_only: It changes nothing. No journal is kept of it.

    Examples:
        >>> from echelons import effect, idempotency_key
        >>> @effect(idempotent=True)
        ... def book(city: str) -> str:
        ...     return f"booked {city}"
        >>> book("Rome")
        'booked Rome'
    """
    nature = Nature.IDEMPOTENT if idempotent else Nature.ONCE
    nature = Nature.READS_ONLY if reads_only else nature

    def declare(thing: F) -> F:
        if _is_tool(thing):
            marked: Any = thing
            marked.metadata = {**(marked.metadata or {}), _MARK: str(nature)}
        else:
            setattr(thing, _MARK, str(nature))
        return thing

    return declare


def nature_of(thing: object) -> Nature:
    """Return how a tool, or a function, was declared."""
    made_of = (getattr(thing, name, None) for name in ("func", "coroutine"))
    declared = (getattr(thing, "metadata", None) or {}).get(_MARK) if _is_tool(thing) else None
    found = [declared, *(getattr(each, _MARK, None) for each in (thing, *made_of))]
    return next((Nature(each) for each in found if each), Nature.ONCE)


def idempotency_key(call: object) -> str:
    """Return the key of the call that is being carried out, the same whenever it is made again.

    Args:
        call: The tool's ``ToolRuntime``, or its config.

    Raises:
        NoCall: It is neither, or of something that no agent of a tree has called.
    """
    config = call if isinstance(call, Mapping) else getattr(call, "config", None)
    found = (config.get("configurable") or {}) if isinstance(config, Mapping) else {}
    if IDEMPOTENCY_KEY not in found:
        raise NoCall(call)
    return str(found[IDEMPOTENCY_KEY])


@dataclass(frozen=True)
class Call:
    """One call of a tool or function, by one task.

    Attributes:
        thread_id: The root's thread.
        task_id: LangGraph's task.
        call_id: The call's id in the model's message.
        tool: Whom it calls.
        path: Names from the root to the calling agent.
        arguments: What it is given.
        nature: What it does to carry it out twice.
        request_id: The request that the agent works on; empty for a root.
    """

    thread_id: str
    task_id: str
    call_id: str
    tool: str
    path: str
    arguments: Mapping[str, Any]
    nature: Nature
    request_id: str = ""

    @cached_property
    def id(self) -> str:
        """The same in every run of the same call, and in no other; the idempotency key."""
        return str(
            uuid5(ECHELONS_NS, mend(f"effect/{self.thread_id}/{self.task_id}/{self.call_id}"))
        )

    @cached_property
    def place(self) -> str:
        """Where in its thread it is made: the same in a copy of the thread, whose call is another.

        So a copy knows of the calls that were under way, and asks about them.
        """
        return str(uuid5(ECHELONS_NS, mend(f"place/{self.task_id}/{self.call_id}")))

    @cached_property
    def digest(self) -> str:
        """What tells the arguments of two calls apart, and nothing else about them."""
        text = json.dumps(self.arguments, sort_keys=True, default=repr)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class State(StrEnum):
    """How far a call is."""

    STARTED = "started"
    SUSPENDED = "suspended"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the journal says of one call.

    Attributes:
        state: How far it is. ``STARTED`` without an end means that nobody knows.
        at: When it was started last, ISO 8601, UTC.
        version: Version of the stored entry.
        result: What it came to, if it is done.
        lost: Why the result of a done call is not here; empty if it is.
        answers: What humans had answered the task when it was started last.
        ours: At which of these places the journal itself had asked.
        asked: The place at which the journal asks now; ``None`` if it does not.
        waits_for: Ids of the interrupts for which a suspended call waits.
        heard: How many answers it had when it was suspended.
    """

    state: State
    at: str
    version: int
    result: Any = None
    lost: str = ""
    answers: tuple[Any, ...] = ()
    ours: tuple[int, ...] = ()
    asked: int | None = None
    waits_for: tuple[str, ...] = ()
    heard: int = 0


class Begun(NamedTuple):
    """How a call stands when a task comes to it.

    Attributes:
        entry: What the journal says of it.
        fresh: Whether it says so only now: nobody has made the call before.
    """

    entry: Entry
    fresh: bool


class Journal(Protocol):
    """Keeps what has been begun and done in the world, in the ledger of a run's saver."""

    def keeps(self, config: Mapping[str, Any]) -> bool:
        """Return whether anything is kept of a run."""
        ...

    def begin(self, call: Call, config: Mapping[str, Any]) -> Begun:
        """Write down that a call is started, or return the entry that it has already.

        Raises:
            LeaseLost: Somebody else runs the thread now.
            LedgerError: What is stored of it cannot be read.
            StorageError: The ledger could not read or write.
        """
        ...

    async def abegin(self, call: Call, config: Mapping[str, Any]) -> Begun:
        """Do what ``begin`` does in an event loop."""
        ...

    def note(self, call: Call, entry: Entry, config: Mapping[str, Any]) -> Entry:
        """Write down where a call stands now, and return the new entry; at now if it says no time.

        Raises:
            CallContested: Another run of the thread has changed the entry in between.
            LeaseLost: Somebody else runs the thread now.
            StorageError: The ledger could not read or write.
        """
        ...

    async def anote(self, call: Call, entry: Entry, config: Mapping[str, Any]) -> Entry:
        """Do what ``note`` does in an event loop."""
        ...

    def end(self, call: Call, entry: Entry, result: Any, config: Mapping[str, Any]) -> None:
        """Write down what a call came to, unless it was started again or its end is known.

        It is the truth, so no lease is asked for, and a human who is asked what became of the
        call need not say. A result that cannot be stored is left out, with the reason.

        Raises:
            StorageError: The ledger could not read or write.
        """
        ...

    async def aend(self, call: Call, entry: Entry, result: Any, config: Mapping[str, Any]) -> None:
        """Do what ``end`` does in an event loop."""
        ...


def _is_tool(thing: object) -> bool:
    # LangChain's tools; the domain does not import them.
    return hasattr(thing, "args_schema") and hasattr(thing, "metadata")
