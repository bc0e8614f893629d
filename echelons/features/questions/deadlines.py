"""`AnswerDeadline`: the time by which a person has to answer a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from echelons.features.feature import AttemptHooks, AttemptStep
from echelons.guards.circuit_breaker import AttemptOutcome
from echelons.human import MAX_TIMEOUT
from echelons.identity.lineage import QUESTIONS_KEY
from echelons.nodes.delegating.attempt import Attempt, AttemptResult
from echelons.plans import Plan


class AnswerDeadline(AttemptHooks):
    """Sets the deadline of the requests to a person."""

    def around_attempt(
        self, step: AttemptStep, proceed: Callable[[AttemptStep], Plan[Attempt]]
    ) -> Plan[Attempt]:
        """Count the whole time of a person who has missed it, as it goes on while no run does."""
        done = yield from proceed(step)
        if done.end is AttemptOutcome.FAILED:
            return done._replace(spent=max(done.spent, step.options.timeout or 0.0))
        return done

    def around_level(
        self, step: AttemptStep, proceed: Callable[[AttemptStep], Plan[AttemptResult]]
    ) -> Plan[AttemptResult]:
        """Add the deadline to the input of the level.

        The level begins with it once: when the person is asked again in the same attempt, in
        whichever process, its deadline stays what it was.
        """
        timeout = step.options.timeout
        if timeout is None:
            return (yield from proceed(step))
        deadline = step.gate.get_time() + timedelta(seconds=min(timeout, MAX_TIMEOUT))
        *facts, task = step.start["messages"]
        note = {QUESTIONS_KEY: {step.order.request.id: {"deadline": deadline.isoformat()}}}
        task = task.model_copy(update={"response_metadata": note})
        start = {**step.start, "messages": [*facts, task]}
        return (yield from proceed(replace(step, start=start)))
