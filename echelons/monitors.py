"""Monitors: agents that read what others do, and report or alert, but never act."""

from __future__ import annotations

from echelons.delegation.policy import AlertDecision
from echelons.features.monitors.settings import Alert, Monitor

__all__ = ["Alert", "AlertDecision", "Monitor"]
