"""`VerificationMiddleware`: what a subordinate answers is verified, and asked for again."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.types import interrupt

from echelons.delegation.request import DelegationRequest, DelegationResponse, Status
from echelons.errors import InvalidSetting
from echelons.features.middleware.delegation import DelegationMiddleware
from echelons.guards.gate import Halt, Pause
from echelons.models.door.ask import CallRefused, ask_beside, find_config
from echelons.models.door.bound_model import BoundModel
from echelons.plans import Plan, adrive_plan, arun_plan_steps, drive_plan, run_plan_steps
from echelons.prompts import load_governance_texts
from echelons.tree.names import check_name

ANSWERS: tuple[Literal["accept", "reject"], ...] = ("accept", "reject")
"""What a human may answer when the limit is reached."""


class VerificationMiddleware(DelegationMiddleware):
    """Verifies each answer of a subordinate; a wrong one goes back with the reasons.

    The subordinate tries again on the same thread. When all attempts are rejected, or the one who
    verifies cannot tell, the user is asked: who accepts the last answer, or rejects it, which makes
    the response `unable`. A response that a limit or a budget leaves unverified is `partial`.

    Args:
        verify: Returns why an answer is wrong, or an empty text if it is right; or a chat model,
            such as that of the superior, which is asked that; or the name of another subordinate
            of the same superior, which gets it as a task. It is asked once for each answer, also
            over questions and crashes.
        max_attempts: Most attempts.

    Raises:
        ConfigurationError: `verify` is a text that is no agent's name.
        InvalidSetting: `max_attempts` is no positive number, or `verify` none of these.
    """

    def __init__(
        self,
        verify: Callable[[DelegationRequest, DelegationResponse], str] | BaseChatModel | str,
        *,
        max_attempts: int = 3,
    ) -> None:
        owner = type(self).__name__
        verifier: object = verify
        if not (isinstance(verifier, (BaseChatModel, str)) or callable(verifier)):
            why = "give a function of request and response, a chat model, or a subordinate's name"
            raise InvalidSetting(owner, "verify", verify, why)
        if type(max_attempts) is not int or max_attempts < 1:
            raise InvalidSetting(owner, "max_attempts", max_attempts, "give a number from 1")
        self.asks = (check_name(verify),) if isinstance(verify, str) else ()
        self._verify = verify
        self._max_attempts = max_attempts

    def wrap_delegation(self, request: DelegationRequest, handler: Any) -> DelegationResponse:
        """Return an answer that is right, or what the user says of the last one."""

        def run(step: DelegationRequest | DelegationResponse) -> Any:
            if isinstance(step, DelegationRequest):
                return handler(step)
            verify, question = self._verify, _build_question(request, step)
            if isinstance(verify, str):
                return handler.ask(verify, "\n".join(str(message.text) for message in question))
            if not isinstance(verify, BaseChatModel):
                return handler.once(lambda: verify(request, step))
            try:
                return handler.once(lambda: run_plan_steps(_ask_model(verify, question)))
            except CallRefused as refused:
                return refused.verdict

        return drive_plan(self._plan(request), run)

    async def awrap_delegation(
        self, request: DelegationRequest, handler: Any
    ) -> DelegationResponse:
        """Async version of `wrap_delegation`."""

        async def run(step: DelegationRequest | DelegationResponse) -> Any:
            if isinstance(step, DelegationRequest):
                return await handler(step)
            verify, question = self._verify, _build_question(request, step)
            if isinstance(verify, str):
                return await handler.ask(
                    verify, "\n".join(str(message.text) for message in question)
                )

            async def check() -> str:
                if isinstance(verify, BaseChatModel):
                    return await arun_plan_steps(_ask_model(verify, question))
                return verify(request, step)

            try:
                return await handler.once(check)
            except CallRefused as refused:
                return refused.verdict

        return await adrive_plan(self._plan(request), run)

    def _plan(
        self, request: DelegationRequest
    ) -> Generator[DelegationRequest | DelegationResponse, Any, DelegationResponse]:
        """Yield requests to send and responses to verify, and return the response."""
        request_again, left = request, self._max_attempts
        while True:
            response: DelegationResponse = yield request_again
            if response.status is not Status.FULFILLED:
                return response
            verdict: DelegationResponse | str | Halt | Pause = yield response
            while isinstance(verdict, Pause):
                interrupt(verdict.marker)
                verdict = yield response
            if isinstance(verdict, Halt):
                update = {"status": Status.PARTIAL, "reason": f"not verified: {verdict.reason}"}
                return response.model_copy(update=update)
            why, left = self._read_verdict(verdict), left - 1
            if not why:
                return response
            can_tell = isinstance(verdict, str) or verdict.status is Status.FULFILLED
            if not (left and can_tell):
                return self._ask_user(request, response, why)
            task = f"Your answer was rejected: {why}\nDo the task again: {request.task}"
            request_again = request.model_copy(update={"task": task})

    def _read_verdict(self, verdict: DelegationResponse | str) -> str:
        """Return what is wrong; of what a model says, nothing counts as right but the word OK."""
        if isinstance(verdict, str) and not isinstance(self._verify, BaseChatModel):
            return verdict
        if isinstance(verdict, DelegationResponse):
            if verdict.status is not Status.FULFILLED:
                return f"{verdict.agent} cannot tell: {verdict.reason or verdict.status}"
            verdict = verdict.result
        text = verdict.strip()
        return "" if text.strip(".! ").upper() == "OK" else text or "it was not accepted"

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
        return response.model_copy(
            update={"status": Status.UNABLE, "reason": f"rejected: {why}", "confidence": 0.0}
        )


def _ask_model(model: BaseChatModel, question: list[BaseMessage]) -> Plan[str]:
    """Return what a model says, asked as a call of the agent around the request."""
    bound = BoundModel.from_runnable(model)
    reply = yield from ask_beside(bound, question, find_config(), may_pause=True)
    return str(reply.text)


def _build_question(request: DelegationRequest, response: DelegationResponse) -> list[BaseMessage]:
    exchange = json.dumps({"task": request.task, "answer": response.result}, ensure_ascii=False)
    return [SystemMessage(load_governance_texts()["verify"]), HumanMessage(exchange)]
