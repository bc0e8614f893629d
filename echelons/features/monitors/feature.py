"""The feature of monitors: their places in a tree, and their work beside a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from echelons.agent import Agent
from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Transaction
from echelons.delegation.policy import DelegationPolicy
from echelons.features.feature import Feature, RunHooks, RunScope
from echelons.features.monitors.ledger import MONITOR
from echelons.features.monitors.placing import PlacedMonitor, place_monitors
from echelons.features.monitors.watch import MonitorWatch
from echelons.tree.agent_registry import AgentKind


class MonitorsFeature(Feature):
    """Agents that read what others do, and report or alert, but never act."""

    name = "monitors"
    records: ClassVar[Sequence[Records[Any]]] = (MONITOR,)
    needs_session = True

    def compile(
        self, root: Agent, models: Mapping[str, Any], policies: Mapping[str, DelegationPolicy]
    ) -> tuple[PlacedMonitor, ...]:
        """Return the monitors of a tree with their models."""
        return place_monitors(root, models, policies)

    def list_members(self, made: Sequence[PlacedMonitor]) -> Mapping[str, AgentKind]:
        """Return the monitors, by path."""
        return {placed.path: AgentKind.MONITOR for placed in made}

    def find_members(
        self, open_: Transaction, thread_id: str, turn: str
    ) -> Mapping[str, AgentKind]:
        """Return the monitors of a turn that a session has run, by path."""
        return dict.fromkeys(MONITOR.list_names(open_, thread_id, turn), AgentKind.MONITOR)

    def open(self, run: RunScope, made: Sequence[PlacedMonitor]) -> RunHooks:
        """Return the monitors at work beside a run."""
        return MonitorWatch(run, made)


FEATURE = MonitorsFeature()
