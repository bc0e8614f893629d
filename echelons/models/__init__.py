"""Chat models by name: resolves the value of `Agent(model=…)` to a LangChain chat model."""

from __future__ import annotations

from echelons.models.resolution import resolve_model

__all__ = ["resolve_model"]
