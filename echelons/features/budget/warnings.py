"""Tells agents when little is left of their budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from langchain_core.messages import BaseMessage, HumanMessage

from echelons.features.feature import AgentHooks, AgentStep, Outcome
from echelons.guards.budget import Allowance, get_allowance, get_budgets
from echelons.identity.lineage import MAIL_KEY, Identity, derive_message_id
from echelons.messaging.mail import BUDGET, Mail, render_mail
from echelons.plans import Plan, build_step


class BudgetWarnings(AgentHooks):
    """The warnings of one agent, shown before its model is called."""

    def around_step(
        self, step: AgentStep, proceed: Callable[[AgentStep], Plan[Outcome]]
    ) -> Plan[Outcome]:
        """Add the warnings that are due to what the model reads."""
        allowance = get_allowance(step.config)
        if allowance is None or not get_budgets(step.gate).has_warnings(allowance):
            return proceed(step)
        return self._warn(allowance, step, proceed)

    def _warn(
        self,
        allowance: Allowance,
        step: AgentStep,
        proceed: Callable[[AgentStep], Plan[Outcome]],
    ) -> Plan[Outcome]:
        take = partial(get_budgets(step.gate).take_warnings, allowance, step.config)
        warnings = _build_warnings((yield build_step(take, step.gate.arun)), step.identity)
        outcome = yield from proceed(step.add_messages(warnings))
        # They count as told, also if the model is not called after all.
        outcome.added[:0] = warnings
        return outcome


def _build_warnings(warnings: Iterable[tuple[str, str]], identity: Identity) -> list[BaseMessage]:
    """Return what an agent is told of its budget, each with an id, as messages for its model."""
    mail = Mail(0, BUDGET, "", "", "budget")
    return [
        HumanMessage(
            render_mail(BUDGET, text, "budget"),
            id=derive_message_id(identity.thread_id, f"budget/{identity.turn}/{place}"),
            response_metadata={MAIL_KEY: mail.to_metadata()},
        )
        for place, text in warnings
    ]
