"""Monitors: agents that read what others do, and report or alert, but never act."""

from __future__ import annotations

from echelons.monitors.alert import Alert, AlertDecision
from echelons.monitors.monitor import Monitor

__all__ = ["Alert", "AlertDecision", "Monitor"]
