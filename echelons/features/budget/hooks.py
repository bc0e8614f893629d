"""Budgets as an agent sees them: what it may grant with a request, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, Final

from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import AfterValidator

from echelons.delegation.request import store_request_budget
from echelons.errors import InvalidSetting
from echelons.features.feature import AgentHooks, AgentStep, Outcome, RequestField
from echelons.guards.budget import (
    UNITS,
    Allowance,
    Budget,
    get_allowance,
    get_budgets,
    store_amounts,
)
from echelons.identity.lineage import MAIL_KEY, derive_message_id
from echelons.messaging.mail import BUDGET, Mail, render_mail
from echelons.plans import Plan, build_step

BUDGET_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "tokens": {"type": "integer", "minimum": 1},
        "money": {"type": "string"},
        "calls": {"type": "integer", "minimum": 1},
        "tool_calls": {"type": "integer", "minimum": 1},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
    },
}


class BudgetHooks(AgentHooks):
    """The budget of one agent."""

    def __init__(self, *, has_budget: bool) -> None:
        schema = BUDGET_SCHEMA if has_budget else None
        kind = Annotated[dict[str, Any] | None, AfterValidator(_check_budget)]
        shared = "budget: all requests of a call share one; give it beside them"
        budget = RequestField("budget", kind, store_request_budget, shared, schema)
        self.request_fields = (budget,)

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
        due: Iterable[tuple[str, str]] = yield build_step(take, step.gate.arun)
        identity, mail = step.identity, Mail(0, BUDGET, "", "", "budget")
        warnings: list[BaseMessage] = [
            HumanMessage(
                render_mail(BUDGET, text, "budget"),
                id=derive_message_id(identity.thread_id, f"budget/{identity.turn}/{place}"),
                response_metadata={MAIL_KEY: mail.to_metadata()},
            )
            for place, text in due
        ]
        outcome = yield from proceed(step.add_messages(warnings))
        # They count as delivered, also if the model is not called after all.
        outcome.added[:0] = warnings
        return outcome


def _check_budget(budget: dict[str, Any] | None) -> dict[str, Any] | None:
    if not budget:
        return None
    try:
        if unknown := budget.keys() - set(UNITS):
            raise ValueError(f"there is no unit {min(unknown)!r}, but {', '.join(UNITS)}")
        return store_amounts(Budget(**budget).amounts)
    except InvalidSetting as error:
        raise ValueError(f"{error.setting}: {error.why}") from error
