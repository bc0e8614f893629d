"""The offline planner: the chat model of agents that were given none."""

from __future__ import annotations

from echelons.models.planner.offline_planner import OfflinePlanner

__all__ = ["OfflinePlanner"]
