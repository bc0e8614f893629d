"""`QuestionsFeature`: what agents ask their superior and the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from echelons.features.feature import (
    AgentHooks,
    AttemptHooks,
    BuiltIn,
    Feature,
    Place,
    RequestPlace,
)
from echelons.features.questions.deadlines import AnswerDeadline
from echelons.features.questions.tools import Ask, AskLater, AskSuperior, AskUser
from echelons.human import Human


class QuestionHooks(AgentHooks):
    """The tools that ask."""

    def __init__(self, place: Place) -> None:
        agent, has_superior = place.agent, place.reports
        may_ask_past = agent.permissions.contact_user
        can_ask_user = may_ask_past or not has_superior
        is_alone = not (has_superior or agent.subordinates or agent.permissions.spawn)
        tools: list[BuiltIn] = [
            AskSuperior(has_superior=has_superior),
            Ask(
                has_superior=has_superior,
                can_ask_user=can_ask_user,
                is_needed=may_ask_past or not is_alone,
            ),
        ]
        if may_ask_past:
            tools.append(AskUser(has_superior=has_superior))
        if can_ask_user:
            tools.append(AskLater(has_superior=has_superior))
        self.tools: Sequence[BuiltIn] = tools


class QuestionsFeature(Feature):
    """Questions to the superior and to the user."""

    name: ClassVar[str] = "questions"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the tools that ask, if the agent's model can call any."""
        return QuestionHooks(place) if place.can_call else None

    def bind_request(self, place: RequestPlace) -> AttemptHooks | None:
        """Return the deadline of the requests to a person."""
        return AnswerDeadline() if isinstance(place.member, Human) else None


FEATURE = QuestionsFeature()
