"""`VerificationMiddleware`: what a subordinate answers is verified, and asked for again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.types import interrupt

from echelons.delegation.request import DelegationRequest, DelegationResponse, Status
from echelons.errors import InvalidSetting
from echelons.middleware.delegation import DelegationMiddleware
from echelons.prompts import load_governance_texts

ANSWERS: tuple[Literal["accept", "reject"], ...] = ("accept", "reject")
"""What a human may answer when the limit is reached."""


class VerificationMiddleware(DelegationMiddleware):
    """Verifies each answer of a subordinate; a wrong one goes back with the reasons.

    The subordinate tries again on the same thread. When all attempts are rejected, the user is
    asked: who accepts the last answer, or rejects it, which makes the response `unable`.

    Args:
        verify: Returns why an answer is wrong, or an empty text if it is right; or a chat model,
            such as that of the superior, which is asked that. It is asked once for each answer,
            also over questions and crashes.
        max_attempts: Most attempts.

    Raises:
        InvalidSetting: `max_attempts` is no positive number, or `verify` neither of these.
    """

    def __init__(
        self,
        verify: Callable[[DelegationRequest, DelegationResponse], str] | BaseChatModel,
        *,
        max_attempts: int = 3,
    ) -> None:
        owner = type(self).__name__
        given: object = verify
        if not (isinstance(given, BaseChatModel) or callable(given)):
            why = "give a function of request and response, or a chat model"
            raise InvalidSetting(owner, "verify", verify, why)
        if type(max_attempts) is not int or max_attempts < 1:
            raise InvalidSetting(owner, "max_attempts", max_attempts, "give a number from 1")
        self._verify = verify
        self._max_attempts = max_attempts

    def wrap_delegation(self, request: DelegationRequest, handler: Any) -> DelegationResponse:
        """Return an answer that is right, or what the user says of the last one."""
        response: DelegationResponse = handler(request)
        for left in reversed(range(self._max_attempts)):
            if response.status is not Status.FULFILLED:
                return response
            given = response
            why: str = handler.once(lambda given=given: self._check(request, given))
            if not why:
                return response
            if not left:
                return self._ask_user(request, response, why)
            response = handler(_build_retry(request, why))
        return response

    async def awrap_delegation(
        self, request: DelegationRequest, handler: Any
    ) -> DelegationResponse:
        """Async version of `wrap_delegation`."""
        response: DelegationResponse = await handler(request)
        for left in reversed(range(self._max_attempts)):
            if response.status is not Status.FULFILLED:
                return response
            given = response

            async def verify(given: DelegationResponse = given) -> str:
                return await self._acheck(request, given)

            why: str = await handler.once(verify)
            if not why:
                return response
            if not left:
                return self._ask_user(request, response, why)
            response = await handler(_build_retry(request, why))
        return response

    def _check(self, request: DelegationRequest, response: DelegationResponse) -> str:
        if not isinstance(self._verify, BaseChatModel):
            return self._verify(request, response)
        return _read_verdict(self._verify.invoke(_build_question(request, response)))

    async def _acheck(self, request: DelegationRequest, response: DelegationResponse) -> str:
        if not isinstance(self._verify, BaseChatModel):
            return self._verify(request, response)
        return _read_verdict(await self._verify.ainvoke(_build_question(request, response)))

    def _ask_user(
        self, request: DelegationRequest, response: DelegationResponse, why: str
    ) -> DelegationResponse:
        answer = interrupt(
            {
                "question": f"Accept the answer of {request.current} nevertheless?",
                "task": request.task,
                "answer": response.result,
                "rejected": why,
                "choices": list(ANSWERS),
            },
            response_schema={"enum": list(ANSWERS)},
        )
        if answer == "accept":
            return response
        reason = f"rejected {self._max_attempts} times, at last: {why}"
        return response.model_copy(
            update={"status": Status.UNABLE, "reason": reason, "confidence": 0.0}
        )


def _build_retry(request: DelegationRequest, why: str) -> DelegationRequest:
    task = f"Your answer was rejected: {why}\nDo the task again: {request.task}"
    return request.model_copy(update={"task": task})


def _build_question(request: DelegationRequest, response: DelegationResponse) -> list[BaseMessage]:
    told = json.dumps({"task": request.task, "answer": response.result}, ensure_ascii=False)
    return [SystemMessage(load_governance_texts()["verify"]), HumanMessage(told)]


def _read_verdict(reply: BaseMessage) -> str:
    """Return what is wrong; nothing of a reply counts as right but the word OK."""
    text = str(reply.text).strip()
    return "" if text.strip(".! ").upper() == "OK" else text or "it was not accepted"
