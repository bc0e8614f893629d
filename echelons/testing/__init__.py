"""Test doubles that ship with the library, for its own tests and for yours.

The names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelons.testing.clock import Clock, FakeClock, ManualClock, SystemClock
    from echelons.testing.openai_server import AnthropicServer, OpenAIServer
    from echelons.testing.scripted_model import CallRecord, ScriptedModel
    from echelons.testing.scripts import Script, Step, per_conversation
    from echelons.testing.steps import Call, Reply, delegate, delegate_many, report

_HOMES = {
    **dict.fromkeys(("CallRecord", "ScriptedModel"), "scripted_model"),
    **dict.fromkeys(("AnthropicServer", "OpenAIServer"), "openai_server"),
    **dict.fromkeys(("Clock", "FakeClock", "ManualClock", "SystemClock"), "clock"),
    **dict.fromkeys(("Script", "Step", "per_conversation"), "scripts"),
    **dict.fromkeys(("Call", "Reply", "delegate", "delegate_many", "report"), "steps"),
}

__all__ = [
    "AnthropicServer",
    "Call",
    "CallRecord",
    "Clock",
    "FakeClock",
    "ManualClock",
    "OpenAIServer",
    "Reply",
    "Script",
    "ScriptedModel",
    "Step",
    "SystemClock",
    "delegate",
    "delegate_many",
    "per_conversation",
    "report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
