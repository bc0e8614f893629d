"""Side effects of tools: how they are declared, and the protocol of the effect journal.

A call is identified by its task and its id: a resumed run makes the same call, a fork another. If
an interrupted call may have happened, a human is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from hashlib import sha256
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar
from uuid import uuid5

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from echelons.errors import InvalidSetting, no_call
from echelons.guards.gate import Halt
from echelons.identity.lineage import ECHELONS_NS
from echelons.text.error_lines import sanitize_value
from echelons.text.input_limits import shorten_repr

IDEMPOTENCY_KEY = "idempotency_key"
"""Config key of the idempotency key of a call."""
_EFFECT_MARK = "echelons_effect"
_POLLS_MARK = "echelons_polls"

F = TypeVar("F")
T = TypeVar("T")


class EffectKind(StrEnum):
    """How safe it is to execute a call twice."""

    ONCE = "once"
    IDEMPOTENT = "idempotent"
    READS_ONLY = "reads_only"


def effect(
    *, idempotent: bool = False, reads_only: bool = False, polls: bool = False
) -> Callable[[F], F]:
    """Declare the side effects of a tool or function.

    Without this decorator, a call interrupted by a crash is not repeated until a human has said
    whether it happened. Put it above or below `@tool`.

    Args:
        idempotent: Two calls with the same `idempotency_key` have one effect. Such a call is
            repeated after a crash.
        reads_only: A call changes nothing. No journal is kept of it.
        polls: It is called again and again until something has happened, so that the same result is
            no reason to end its agent (`Limits.max_repeats`).

    Raises:
        InvalidSetting: One of them is no boolean.

    Examples:
        >>> from echelons import effect, idempotency_key
        >>> @effect(idempotent=True)
        ... def book(city: str) -> str:
        ...     return f"booked {city}"
        >>> book("Rome")
        'booked Rome'
    """
    flags = {"idempotent": idempotent, "reads_only": reads_only, "polls": polls}
    for name, flag in flags.items():
        # `@effect(search)` instead of `@effect()` would declare something else.
        if type(flag) is not bool:
            raise InvalidSetting("effect", name, flag, "give True or False")
    kind = EffectKind.IDEMPOTENT if idempotent else EffectKind.ONCE
    kind = EffectKind.READS_ONLY if reads_only else kind

    marks: dict[str, Any] = {_EFFECT_MARK: str(kind)}
    if polls:
        marks[_POLLS_MARK] = True

    def declare(thing: F) -> F:
        if _is_tool(thing):
            marked: Any = thing
            marked.metadata = {**(marked.metadata or {}), **marks}
        else:
            for name, mark in marks.items():
                setattr(thing, name, mark)
        return thing

    return declare


def get_effect_kind(thing: object) -> EffectKind:
    """Return the declared kind of a tool or function; `ONCE` if it has no declaration."""
    return EffectKind(_find_mark(thing, _EFFECT_MARK) or EffectKind.ONCE)


def is_polling(thing: object) -> bool:
    """Return whether a tool or function is declared to be called until something has happened."""
    return bool(_find_mark(thing, _POLLS_MARK))


def _find_mark(thing: object, name: str) -> Any:
    metadata = (getattr(thing, "metadata", None) or {}) if _is_tool(thing) else {}
    functions = (getattr(thing, attribute, None) for attribute in ("func", "coroutine"))
    marks = (getattr(marked, name, None) for marked in (thing, *functions))
    return next(filter(None, (metadata.get(name), *marks)), None)


def idempotency_key(call: object) -> str:
    """Return the idempotency key of the current call, the same each time it is repeated.

    Args:
        call: The tool's `ToolRuntime`, or its config.

    Raises:
        ThreadError: It is neither, or the tool was not called by an agent of a tree.
    """
    config = call if isinstance(call, Mapping) else getattr(call, "config", None)
    configurable = (config.get("configurable") or {}) if isinstance(config, Mapping) else {}
    if IDEMPOTENCY_KEY not in configurable:
        raise no_call(shorten_repr(call))
    return str(configurable[IDEMPOTENCY_KEY])


@dataclass(frozen=True)
class EffectCall:
    """One call of a tool or function, made by one of LangGraph's tasks."""

    thread_id: str  # of the root
    task_id: str
    call_id: str  # in the model's message
    tool: str
    path: str  # of the calling agent
    arguments: Mapping[str, Any]
    effect_kind: EffectKind
    request_id: str = ""  # of the request that the agent works on; empty for a root
    entry: int = 1  # its number among the entries of one call, which middleware may repeat
    # Middleware is around it: another entry may follow, which needs no second approval, so what is
    # recorded keeps the answers.
    is_wrapped: bool = False
    received: Mapping[str, Any] | None = None  # as the model wrote them, where others are meant

    @cached_property
    def id(self) -> str:
        """The idempotency key: the same whenever this call is repeated, and for no other call."""
        name = sanitize_value(f"effect/{self.thread_id}/{self._place}")
        return str(uuid5(ECHELONS_NS, name))

    @cached_property
    def position_id(self) -> str:
        """The call's position, by which a copy of the thread finds the calls under way."""
        return str(uuid5(ECHELONS_NS, sanitize_value(f"place/{self._place}")))

    @property
    def _place(self) -> str:
        place = f"{self.task_id}/{self.call_id}"
        return place if self.entry == 1 else f"{place}#{self.entry}"

    @cached_property
    def digest(self) -> str:
        """A hash of the arguments as they were received, by which a resume finds its entry."""
        arguments = self.arguments if self.received is None else self.received
        text = json.dumps(arguments, sort_keys=True, default=repr)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class CallState(StrEnum):
    """The progress of a call."""

    STARTED = "started"
    SUSPENDED = "suspended"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class CallQuestion:
    """A question of a call to the user, as the superior of its agent reads it."""

    id: str  # of its interrupt
    text: str  # shortened
    answer: str | None = None  # shortened; `None` while the call waits for it
    is_review: bool = False  # asks about tool calls: their arguments are not passed on


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The journal's entry for one call."""

    state: CallState  # if it is still `STARTED` after a crash, the outcome is unknown
    at: str  # when it was last started, ISO 8601, UTC
    version: int  # of the stored entry
    result: Any = None
    lost: str = ""  # why the result of a call that is done is missing
    answers: tuple[Any, ...] = ()  # by humans to the task, when it was last started
    # Indices in `answers` of those to our questions, not to those of the tool: whether the call may
    # run, which is the first if it was asked, and whether it happened.
    ours: tuple[int, ...] = ()
    asked: int | None = None  # index of the answer for which the journal waits now
    waits_for: tuple[str, ...] = ()  # ids of the interrupts of a suspended call
    heard: int = 0  # answers that it had when it was suspended
    told: tuple[CallQuestion, ...] = ()  # the last ones if there are many
    cut: str = ""  # why the call was given up; empty if a crash cut it short


class CallStart(NamedTuple):
    """The journal's entry of a call to make."""

    entry: JournalEntry
    fresh: bool  # not made before
    halt: Halt | None = None  # why it must not be made, and is not recorded


class Journal(Protocol):
    """Records the calls that have been started and done, in the ledger of a run's saver."""

    def keeps(self, config: Mapping[str, Any]) -> bool:
        """Return whether a journal is kept of a run."""
        ...

    def find(self, call: EffectCall, config: Mapping[str, Any]) -> JournalEntry | None:
        """Return the entry of a call, `None` if it has not begun."""
        ...

    def begin(
        self, call: EffectCall, config: Mapping[str, Any], answers: Sequence[Any] = ()
    ) -> CallStart:
        """Record that a call is started, or return the entry that it already has.

        `answers` of humans before it begins are not for the tool. Nothing is recorded for a
        dismissed agent.
        """
        ...

    def note(
        self, call: EffectCall, entry: JournalEntry, config: Mapping[str, Any]
    ) -> JournalEntry:
        """Replace a call's entry and return the stored one, with the current time if `at` is empty.

        Raises a `LedgerError` of the code `call_contested` if another run has changed it.
        """
        ...

    def end(
        self, call: EffectCall, entry: JournalEntry, result: Any, config: Mapping[str, Any]
    ) -> None:
        """Record the result of a call, unless it was started again or its end is recorded.

        It needs no lease, as it is a fact, and it settles the question about the call's outcome. A
        result that cannot be stored is left out, with the reason.
        """

    async def arun(self, work: Callable[[], T], config: Mapping[str, Any]) -> T:
        """Call one of these methods in an event loop, and again if the ledger was busy."""
        ...


def _is_tool(thing: object) -> bool:
    # By attributes, because the domain does not import LangChain.
    return hasattr(thing, "args_schema") and hasattr(thing, "metadata")


OUTCOME_QUESTION_KIND = "outcome_unknown"
MAX_ARGUMENT_LENGTH, MAX_ARGUMENTS = 200, 20
"""Of a call, in the question."""


class OutcomeUnknown(TypedDict):
    """The value of the interrupt that asks about an interrupted call.

    Attributes:
        kind: `"outcome_unknown"`.
        question: The question in words.
        tool: Name of the tool.
        arguments: Its arguments, shortened.
        agent_path: Path of the calling agent from the root, joined with `/`.
        started_at: When the call was last started, ISO 8601, UTC.
        idempotency_key: The call's key, by which an external service may identify it.
        happened: Whether the call is known to have happened and only its result is missing.
        answers: An example of each possible answer.
    """

    kind: str
    question: str
    tool: str
    arguments: dict[str, Any]
    agent_path: str
    started_at: str
    idempotency_key: str
    happened: bool
    answers: list[Any]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Happened(_Answer):
    """The call was executed, with this result."""

    outcome: Literal["happened"]
    result: str


class NotHappened(_Answer):
    """The call was not executed, and is not to be repeated."""

    outcome: Literal["not_happened"]


class RunAgain(_Answer):
    """The call is to be executed now, whether or not it was before."""

    outcome: Literal["run_again"]


CallOutcome: TypeAlias = Happened | NotHappened | RunAgain

EXAMPLE_ANSWERS: tuple[Any, ...] = (
    {"outcome": "happened", "result": "what the tool would have returned"},
    {"outcome": "not_happened"},
    {"outcome": "run_again"},
)


def build_outcome_question(call: EffectCall, entry: JournalEntry) -> OutcomeUnknown:
    """Return the question to a human about a call."""
    shown = {
        sanitize_value(str(key)): _shorten_value(value)
        for key, value in [*call.arguments.items()][:MAX_ARGUMENTS]
    }
    left = len(call.arguments) - len(shown)
    words = f"{call.tool} was started at {entry.at} and then cut short. Did it happen?"
    if entry.cut:
        words = f"{call.tool} was started at {entry.at} and given up: {entry.cut}. Did it happen?"
    if entry.lost:
        words = f"{call.tool} did happen, but its result is lost: {entry.lost}. What was it?"
    return OutcomeUnknown(
        kind=OUTCOME_QUESTION_KIND,
        question=words,
        tool=call.tool,
        arguments=shown | ({"…": f"{left} more"} if left > 0 else {}),
        agent_path=call.path,
        started_at=entry.at,
        idempotency_key=call.id,
        happened=bool(entry.lost),
        answers=[dict(example) for example in EXAMPLE_ANSWERS],
    )


def is_outcome_question(value: object) -> bool:
    """Return whether an interrupt's value is a question about a call's outcome."""
    if not isinstance(value, Mapping) or value.get("kind") != OUTCOME_QUESTION_KIND:
        return False
    # A tool's own interrupt may use the same `kind`.
    whole = OutcomeUnknown.__annotations__.keys() <= value.keys()
    return whole and isinstance(value["arguments"], Mapping)


def parse_outcome(answer: object) -> CallOutcome | None:
    """Return the outcome that an answer states, or `None` if it is not a valid answer.

    Examples:
        >>> parse_outcome("run_again")
        RunAgain(outcome='run_again')
        >>> parse_outcome({"outcome": "happened", "result": "booked"}).result
        'booked'
        >>> parse_outcome("perhaps") is None
        True
    """
    try:
        outcome: CallOutcome = _build_adapter_and_schema()[0].validate_python(
            {"outcome": answer} if isinstance(answer, str) else answer
        )
    except ValidationError:
        return None
    return outcome


def build_outcome_schema() -> dict[str, Any]:
    """Return the JSON Schema of a valid answer."""
    return _build_adapter_and_schema()[1]


@cache
def _build_adapter_and_schema() -> tuple[TypeAdapter[Any], dict[str, Any]]:
    words = Literal["not_happened", "run_again"]
    return TypeAdapter(CallOutcome), TypeAdapter(CallOutcome | words).json_schema()


def _shorten_value(value: Any) -> Any:
    value = sanitize_value(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=repr, ensure_ascii=False)
    if len(text) > MAX_ARGUMENT_LENGTH:
        return f"{text[: MAX_ARGUMENT_LENGTH - 1]}…"
    return value if isinstance(value, str) else json.loads(text)
