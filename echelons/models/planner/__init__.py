"""The offline planner: the chat model of agents without a model of their own."""

from __future__ import annotations

from echelons.models.planner.offline_planner import OfflinePlanner

__all__ = ["OfflinePlanner"]
