"""The rules of providers for requests, small and named, for models and servers of tests.

Each rule of a table yields what is wrong with a request, in the words of the provider where they
are known. The rules are those that the providers document or enforce, and those of the many servers
that speak the same protocols; where they differ, the strictest counts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from echelons.testing.provider_rules.anthropic_messages import ANTHROPIC_RULES
from echelons.testing.provider_rules.chat_completions import CHAT_RULES
from echelons.testing.provider_rules.openai_responses import RESPONSES_RULES
from echelons.testing.provider_rules.rule import Rules, find_fault

if TYPE_CHECKING:
    from echelons.testing.provider_rules.chat_messages import (
        MESSAGE_RULES,
        OUTSIDE_RULES,
        ModelRequest,
    )

__all__ = [
    "ANTHROPIC_RULES",
    "CHAT_RULES",
    "MESSAGE_RULES",
    "OUTSIDE_RULES",
    "RESPONSES_RULES",
    "ModelRequest",
    "Rules",
    "find_fault",
]


def __getattr__(name: str) -> Any:
    if name not in ("MESSAGE_RULES", "OUTSIDE_RULES", "ModelRequest"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Servers need no LangChain: it loads on first use.
    return getattr(import_module(f"{__name__}.chat_messages"), name)
