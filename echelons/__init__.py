"""Echelons: hierarchies of agents on LangGraph.

Public names are imported on first use, so `import echelons` itself stays fast.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelons.agent import Agent, subordinate
    from echelons.capabilities.capability import Capability
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.pending_work import Question
    from echelons.checkpoints.threads.store import ThreadStore
    from echelons.delegation.approvals import Decision
    from echelons.delegation.contract import Contract
    from echelons.delegation.effects import OutcomeUnknown, effect, idempotency_key
    from echelons.delegation.policy import DelegationPolicy
    from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage
    from echelons.errors import EchelonsError
    from echelons.guards.budget import Budget
    from echelons.guards.circuit_breaker import BreakerPolicy
    from echelons.guards.limits import Limits, time_left
    from echelons.guards.permissions import Permissions, Spawn
    from echelons.human import Human
    from echelons.nodes.tool_execution.current_request import get_logger, get_request
    from echelons.runtime.run_events import RunEvent
    from echelons.runtime.session import Session
    from echelons.runtime.session_run import AsyncRun, Result, Run
    from echelons.text.error_lines import redact_secrets
    from echelons.tree.agent_path import AgentPath

_LINKS = ("checkpoints", "graphs", "nodes")
if any(Path(__file__).with_name(link).is_file() for link in _LINKS):
    # Without this, the first import of a linked folder would say only that there is no such module.
    raise ImportError(
        "this checkout of Echelons has no symbolic links: there are small text files in place of "
        f"{', '.join(_LINKS)} in {Path(__file__).parent}. `pip install .` does not need links: run "
        "it in the checkout, and leave the checkout. To work in the checkout, create them (on "
        "Windows, turn developer mode on first): `git config core.symlinks true`, then "
        f"`git checkout -- {' '.join(f'echelons/{link}' for link in _LINKS)}`. A folder from a ZIP "
        "is no checkout: clone the repository."
    )

_HOMES = {
    "Agent": "agent",
    "AgentPath": "tree.agent_path",
    "AsyncRun": "runtime.session_run",
    "BreakerPolicy": "guards.circuit_breaker",
    "Budget": "guards.budget",
    "Capability": "capabilities.capability",
    "Contract": "delegation.contract",
    "Decision": "delegation.approvals",
    "DelegationPolicy": "delegation.policy",
    "DelegationRequest": "delegation.request",
    "DelegationResponse": "delegation.request",
    "EchelonsError": "errors",
    "Human": "human",
    "Limits": "guards.limits",
    "OutcomeUnknown": "delegation.effects",
    "Permissions": "guards.permissions",
    "Question": "checkpoints.threads.pending_work",
    "Result": "runtime.session_run",
    "Run": "runtime.session_run",
    "RunEvent": "runtime.run_events",
    "Session": "runtime.session",
    "Spawn": "guards.permissions",
    "SqliteCheckpointer": "checkpoints.checkpointer",
    "Status": "delegation.request",
    "ThreadStore": "checkpoints.threads.store",
    "Usage": "delegation.request",
    "effect": "delegation.effects",
    "get_logger": "nodes.tool_execution.current_request",
    "get_request": "nodes.tool_execution.current_request",
    "idempotency_key": "delegation.effects",
    "redact_secrets": "text.error_lines",
    "subordinate": "agent",
    "time_left": "guards.limits",
}

__all__ = [
    "Agent",
    "AgentPath",
    "AsyncRun",
    "BreakerPolicy",
    "Budget",
    "Capability",
    "Contract",
    "Decision",
    "DelegationPolicy",
    "DelegationRequest",
    "DelegationResponse",
    "EchelonsError",
    "Human",
    "Limits",
    "OutcomeUnknown",
    "Permissions",
    "Question",
    "Result",
    "Run",
    "RunEvent",
    "Session",
    "Spawn",
    "SqliteCheckpointer",
    "Status",
    "ThreadStore",
    "Usage",
    "effect",
    "get_logger",
    "get_request",
    "idempotency_key",
    "redact_secrets",
    "subordinate",
    "time_left",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
