"""Models by name: what `Agent(model=…)` accepts becomes a LangChain chat model here."""

from __future__ import annotations

from echelons.models.resolution import resolve

__all__ = ["resolve"]
