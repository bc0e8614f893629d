"""Echelons: hierarchies of agents on LangGraph.

The names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelons.agent import Agent
    from echelons.checkpoints.pending import Question
    from echelons.checkpoints.sqlite import SqliteCheckpointer
    from echelons.checkpoints.threads import ThreadStore
    from echelons.delegation import DelegationRequest, DelegationResponse, Status, Usage
    from echelons.effects import effect, idempotency_key
    from echelons.errors import EchelonsError
    from echelons.limits import Limits
    from echelons.outcomes import OutcomeUnknown
    from echelons.runtime.events import RunEvent
    from echelons.runtime.run import AsyncRun, Result, Run
    from echelons.runtime.session import Session

_HOMES = {
    "Agent": "agent",
    "AsyncRun": "runtime.run",
    "DelegationRequest": "delegation",
    "DelegationResponse": "delegation",
    "EchelonsError": "errors",
    "Limits": "limits",
    "OutcomeUnknown": "outcomes",
    "Question": "checkpoints.pending",
    "Result": "runtime.run",
    "Run": "runtime.run",
    "RunEvent": "runtime.events",
    "Session": "runtime.session",
    "SqliteCheckpointer": "checkpoints.sqlite",
    "Status": "delegation",
    "ThreadStore": "checkpoints.threads",
    "Usage": "delegation",
    "effect": "effects",
    "idempotency_key": "effects",
}

__all__ = [
    "Agent",
    "AsyncRun",
    "DelegationRequest",
    "DelegationResponse",
    "EchelonsError",
    "Limits",
    "OutcomeUnknown",
    "Question",
    "Result",
    "Run",
    "RunEvent",
    "Session",
    "SqliteCheckpointer",
    "Status",
    "ThreadStore",
    "Usage",
    "effect",
    "idempotency_key",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
