"""Middleware about how an agent begins: with a plan, and with whether to delegate at all."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Literal

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, hook_config
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolCall
from langgraph.types import interrupt

from echelons.delegation.contract import SubordinateTool
from echelons.errors import InvalidSetting
from echelons.models.door.notices import build_notice
from echelons.prompts import fill_text, load_governance_texts
from echelons.tree.names import ASK, DELEGATING_TOOLS

_STEP = re.compile(r"\b(?:and|then|after|before|also|finally)\b|[,;.\n]", re.IGNORECASE)
_PLAN_CALL = "plan_"


class PlanMiddleware(AgentMiddleware[Any, Any]):
    """Lets an agent write its plan before it proceeds with a task.

    The plan is its first reply to each task, without calls, and so an event of the run. Then it
    proceeds; or it is asked for first: the user or the superior accepts the plan, or says what is
    wrong with it.

    Args:
        approve: The approver. `"superior"` is asked with `ask`, an agent as the user.
            The answer `"accept"` lets the agent proceed, any other text is the reason of a
            rejection, after which it writes another plan. `None` for no approval.
    """

    def __init__(self, *, approve: Literal["user", "superior"] | None = None) -> None:
        if approve not in (None, "user", "superior"):
            expected = 'give "user", "superior" or None'
            raise InvalidSetting(type(self).__name__, "approve", approve, expected)
        self._approve = approve

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        """Ask for the plan, without tools, where a task has none yet."""
        if not self._needs_plan(request):
            return handler(request)
        return self._ask_superior(request, handler(self._change(request)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Async version of `wrap_model_call`."""
        if not self._needs_plan(request):
            return await handler(request)
        return self._ask_superior(request, await handler(self._change(request)))

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Let the agent proceed with its plan, or ask the user about it."""
        if self._approve == "superior" or not _is_first_reply(state["messages"]):
            return None
        plan = str(state["messages"][-1].text)
        text = load_governance_texts()["proceed"]
        if self._approve == "user":
            question = "May the agent proceed with this plan? accept, or say what is wrong"
            answer = interrupt({"question": question, "plan": plan})
            if answer != "accept":
                text = fill_text(load_governance_texts()["replan"], why=str(answer))
        return {"messages": [build_notice(text)], "jump_to": "model"}

    def _needs_plan(self, request: ModelRequest[Any]) -> bool:
        """Return whether the last message is a task without a plan, or rejects one."""
        last = request.messages[-1] if request.messages else None
        if last is None or last.text == load_governance_texts()["proceed"]:
            return False
        reply = next(
            (message for message in request.messages[::-1] if isinstance(message, AIMessage)), None
        )
        calls = [call["id"] for call in reply.tool_calls] if reply else []
        if calls and (calls[0] or "").startswith(_PLAN_CALL):
            return str(last.text).strip(' .!"').lower() != "accept"
        return isinstance(last, HumanMessage)

    def _change(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        text = load_governance_texts()["plan"]
        return request.override(system_message=_add_text(request, text), tools=[])

    def _ask_superior(self, request: ModelRequest[Any], response: Any) -> Any:
        """Return the model's response with the question that it did not have to write."""
        if self._approve != "superior":
            return response
        *before, reply = response.result
        question = fill_text(load_governance_texts()["approve"], plan=str(reply.text))
        call = ToolCall(
            name=ASK,
            args={"question": question},
            id=f"{_PLAN_CALL}{len(request.messages)}",
            type="tool_call",
        )
        asking = reply.model_copy(update={"tool_calls": [call]})
        return replace(response, result=[*before, asking])


class ScoringMiddleware(AgentMiddleware[Any, Any]):
    """Decides by points whether an agent delegates a task or does it itself.

    A task of fewer points than the threshold is done without the tools that delegate; of another
    the agent reads that it should delegate it.

    Args:
        threshold: Points from which a task is delegated.
        score: Returns the points of a task; by default those of `score_task`.
    """

    def __init__(self, threshold: int = 4, *, score: Callable[[str], int] | None = None) -> None:
        owner = type(self).__name__
        if type(threshold) is not int or threshold < 1:
            raise InvalidSetting(owner, "threshold", threshold, "give a number from 1")
        if score is not None and not callable(score):
            raise InvalidSetting(owner, "score", score, "give a function of the task")
        self._threshold = threshold
        self._score = score or score_task

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        """Tell the agent what the task is worth, and take the tools that do not fit."""
        return handler(self._change(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Async version of `wrap_model_call`."""
        return await handler(self._change(request))

    def _change(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        tasks = [message for message in request.messages if isinstance(message, HumanMessage)]
        points = self._score(str(tasks[-1].text) if tasks else "")
        delegates = points >= self._threshold
        text = load_governance_texts()["delegate" if delegates else "do"]
        text = fill_text(text, points=str(points), threshold=str(self._threshold))
        tools = [tool for tool in request.tools if delegates or not _hands_on(tool)]
        return request.override(system_message=_add_text(request, text), tools=tools)


def score_task(task: str) -> int:
    """Return the points of a task: one for each step that it names, and for every 20 words.

    Examples:
        >>> score_task("Find a hotel")
        1
        >>> score_task("Find a hotel and a train, then book both, and write to Ann")
        4
    """
    steps = [step for step in _STEP.split(task) if step.strip()]
    return len(steps) + len(task.split()) // 20


def _is_first_reply(messages: list[BaseMessage]) -> bool:
    """Return whether the last message is a reply to a task that has no plan yet."""
    if len(messages) < 2 or not isinstance(messages[-1], AIMessage):
        return False
    before = messages[-2]
    is_proceeding = before.text == load_governance_texts()["proceed"]
    return isinstance(before, HumanMessage) and not is_proceeding


def _add_text(request: ModelRequest[Any], text: str) -> SystemMessage:
    system = request.system_message
    if system is None:
        return SystemMessage(text)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{text}"})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": text}]})


def _hands_on(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    is_delegating = isinstance(function, dict) and function.get("name") in DELEGATING_TOOLS
    return is_delegating or isinstance(tool, SubordinateTool)
