"""`AliasFeature`: names for people, which agents that are made at run time get."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from echelons.checkpoints.coordination.agent_aliases import ALIAS, assign_alias
from echelons.checkpoints.ledger import Transaction
from echelons.errors import LedgerDamaged
from echelons.features.feature import Feature, GateScope
from echelons.guards.gate import Step, StepGuard
from echelons.identity.lineage import derive_agent_id
from echelons.run_context import get_context
from echelons.text.error_lines import describe_error
from echelons.tree.name_themes import choose_theme

LOG = logging.getLogger(__name__)


class AliasGuard(StepGuard):
    """Gives a spawned agent its alias in the transaction of its first step."""

    name: ClassVar[str] = "aliases"

    def __init__(self, run: GateScope) -> None:
        self._run = run

    def concerns(self, step: Step, config: Mapping[str, Any], claims: Sequence[Any]) -> bool:
        """Return whether a spawned agent begins."""
        return step is Step.SUBORDINATE and get_context(config).is_added

    def admit(
        self, open_: Transaction, step: Step, config: Mapping[str, Any], claims: Sequence[Any]
    ) -> None:
        """Give the agent its alias, unless it has one."""
        run, path = self._run, str(config["metadata"].get("agent_path", ""))
        theme = choose_theme(run.agent.theme, run.around.theme, run.thread_id)
        agent_id = derive_agent_id(run.thread_id, path)
        try:
            assign_alias(open_, run.thread_id, agent_id, theme, run.thread_id, path)
        except LedgerDamaged as error:
            # Its work does not depend on it.
            LOG.warning("%s gets no name for people: %s", path, describe_error(error))


class AliasFeature(Feature):
    """Aliases of agents."""

    name: ClassVar[str] = "aliases"
    records = (ALIAS,)

    def guard(self, run: GateScope) -> StepGuard:
        """Return what names the spawned agents of a run."""
        return AliasGuard(run)


FEATURE = AliasFeature()
