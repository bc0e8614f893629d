"""The limits around a call of a team's server, and its usage: in the `_meta` of MCP.

A tool of a `TeamServer` is a tree within the step that calls it, in another process. The request
has the levels around it and what is left of the limits; the result has the model calls to count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final, Self

from mcp import types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from echelons.checkpoints.coordination.gate import TreeGate
from echelons.checkpoints.ledger import MemoryLedger
from echelons.guards.gate import CallUsage, NotedCall, OuterStep
from echelons.guards.limits import MAX_DEPTH, Limits
from echelons.identity.lineage import Identity, get_level
from echelons.langgraph_internals import parent_config
from echelons.run_context import CONTEXT_KEY, RunContext, get_context

META_KEY: Final = "echelons"
"""Key of the `_meta` of a request and of a result."""
_CLIENT: Final = Identity("client", ("client",), "client", "", turn="client")

_AMOUNTS: Final = ("steps", "calls", "tokens", "seconds")


class OuterLimits(BaseModel):
    """The limits around a call: the levels above its tree, and the rest of the others."""

    model_config = ConfigDict(frozen=True)

    level: int = Field(ge=1, le=MAX_DEPTH)
    max_depth: int = Field(ge=1, le=MAX_DEPTH)
    steps: int | None = Field(default=None, ge=0)
    calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @classmethod
    def find(cls) -> Self | None:
        """Return the limits around the caller; `None` outside of a tree."""
        config = parent_config.get() or {}
        context = get_context(config)
        if context.gate is None:
            return None
        left: dict[str, Any] = dict(context.gate.find_left())
        if context.deadline is not None:
            seconds = max(context.deadline - monotonic(), 0.0)
            left["seconds"] = min(seconds, left.get("seconds", seconds))
        return cls(level=get_level(config), max_depth=context.max_depth, **left)

    @property
    def exhausted(self) -> str:
        """The name of a limit of which nothing is left; empty if there is none."""
        return next((unit for unit in _AMOUNTS if getattr(self, unit) == 0), "")

    @contextmanager
    def hold(self, calls: list[NotedCall]) -> Iterator[None]:
        """Let a tree run within these limits, and note its model calls."""
        left = self.model_dump(include={*_AMOUNTS}, exclude_none=True)
        gate = TreeGate(_CLIENT, "client", Limits(**left), MemoryLedger())
        gate.note_usage = calls.append
        context = RunContext(gate=gate, levels_around=self.level - 1, max_depth=self.max_depth)
        token = parent_config.set(
            {"metadata": _CLIENT.to_metadata(), "configurable": {CONTEXT_KEY: context}}
        )
        try:
            yield
        finally:
            parent_config.reset(token)


class ReportedCall(BaseModel):
    """A model call of a tree, as its server reports it."""

    model: str = Field(default="", max_length=200)
    input_tokens: int | None = Field(default=None, ge=0, le=10**9)
    output_tokens: int = Field(default=0, ge=0, le=10**9)


class ReportedCalls(BaseModel):
    """The model calls of a tree, in the `_meta` of the result of its call."""

    path: str = Field(max_length=500)
    thread: str = Field(max_length=500)
    calls: list[ReportedCall] = Field(max_length=10_000)


CALL_META: Final[ContextVar[dict[str, Any] | None]] = ContextVar("call_meta", default=None)
"""The `_meta` of the request that is made now."""


def read_outer_limits(meta: types.RequestParams.Meta | None) -> OuterLimits | None:
    """Return the limits that a client reports; `None` for none, or invalid ones."""
    try:
        return OuterLimits.model_validate((meta.model_extra or {})[META_KEY] if meta else None)
    except (KeyError, ValidationError):
        return None


def report_calls(
    result: types.CallToolResult, path: str, thread: str, noted: list[NotedCall]
) -> types.CallToolResult:
    """Return the result of a call with the model calls that its tree has made."""
    calls = [
        ReportedCall(
            model=call.used.model[:200],
            input_tokens=call.used.usage.get("input_tokens", 0) if call.used.usage else None,
            output_tokens=call.used.usage.get("output_tokens", 0) if call.used.usage else 0,
        )
        for call in noted
    ]
    report = ReportedCalls(path=path, thread=thread, calls=calls)
    return result.model_copy(update={"meta": {META_KEY: report.model_dump()}})


def count_calls(result: types.CallToolResult, config: Mapping[str, Any]) -> None:
    """Count the model calls that the result of a call reports, for the step that has made it."""
    try:
        report = ReportedCalls.model_validate((result.meta or {})[META_KEY])
    except (KeyError, ValidationError):
        return
    gate = get_context(config).gate
    if gate is None:
        return
    step = OuterStep(gate, config, "elsewhere")
    inner = {"metadata": {"agent_path": report.path, "agent_thread_id": report.thread}}
    for call in report.calls:
        usage = None
        if call.input_tokens is not None:
            usage = {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens}
        step.count(NotedCall(CallUsage(call.model, usage)), inner, is_step=True)
