"""Chat models by name: resolves the value of `Agent(model=…)` to a LangChain chat model."""

from __future__ import annotations

from echelons.models.resolution import is_offline_planner, resolve_model

__all__ = ["is_offline_planner", "resolve_model"]
