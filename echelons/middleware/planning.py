"""Middleware about how an agent begins: with a plan, and with whether to delegate at all."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, hook_config
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.types import interrupt

from echelons.errors import InvalidSetting
from echelons.prompts import fill_text, load_governance_texts
from echelons.tree.names import DELEGATING_TOOLS

_STEP = re.compile(r"\b(?:and|then|after|before|also|finally)\b|[,;.\n]", re.IGNORECASE)


class PlanMiddleware(AgentMiddleware[Any, Any]):
    """Lets an agent write its plan before it proceeds with a task.

    The plan is its first reply to each task, without calls, and so an event of the run. Then it
    proceeds; or the user is asked first, who accepts the plan, or says what is wrong with it.

    Args:
        approve: Whether the user is asked. The answer `"accept"` lets the agent proceed, any other
            text is the reason of a rejection, after which it writes another plan.
    """

    def __init__(self, *, approve: bool = False) -> None:
        if type(approve) is not bool:
            raise InvalidSetting(type(self).__name__, "approve", approve, "give True or False")
        self._approve = approve

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        """Ask for the plan, without tools, where a task has none yet."""
        return handler(self._change(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Async version of `wrap_model_call`."""
        return await handler(self._change(request))

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Let the agent proceed with its plan, or ask the user about it."""
        if not _is_first_reply(state["messages"]):
            return None
        plan = str(state["messages"][-1].text)
        text = load_governance_texts()["proceed"]
        if self._approve:
            question = "May the agent proceed with this plan? accept, or say what is wrong"
            answer = interrupt({"question": question, "plan": plan})
            if answer != "accept":
                text = fill_text(load_governance_texts()["replan"], why=str(answer))
        return {"messages": [HumanMessage(text)], "jump_to": "model"}

    def _change(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        last = request.messages[-1] if request.messages else None
        is_proceeding = last is not None and last.text == load_governance_texts()["proceed"]
        if not isinstance(last, HumanMessage) or is_proceeding:
            return request
        return request.override(
            system_message=_add_text(request, load_governance_texts()["plan"]), tools=[]
        )


class ScoringMiddleware(AgentMiddleware[Any, Any]):
    """Decides by points whether an agent delegates a task or does it itself.

    A task of fewer points than the threshold is done without the tools that delegate; of another
    the agent is told to delegate it.

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
        tasks = [each for each in request.messages if isinstance(each, HumanMessage)]
        points = self._score(str(tasks[-1].text) if tasks else "")
        delegates = points >= self._threshold
        text = load_governance_texts()["delegate" if delegates else "do"]
        told = fill_text(text, points=str(points), threshold=str(self._threshold))
        tools = [each for each in request.tools if delegates or not _hands_on(each)]
        return request.override(system_message=_add_text(request, told), tools=tools)


def score_task(task: str) -> int:
    """Return the points of a task: one for each step that it names, and for every 20 words.

    Examples:
        >>> score_task("Find a hotel")
        1
        >>> score_task("Find a hotel and a train, then book both, and write to Ann")
        4
    """
    steps = [each for each in _STEP.split(task) if each.strip()]
    return len(steps) + len(task.split()) // 20


def _is_first_reply(messages: list[BaseMessage]) -> bool:
    """Return whether the last message is a reply to a task that has no plan yet."""
    if len(messages) < 2 or not isinstance(messages[-1], AIMessage):
        return False
    before = messages[-2]
    is_proceeding = before.text == load_governance_texts()["proceed"]
    return isinstance(before, HumanMessage) and not is_proceeding


def _add_text(request: ModelRequest[Any], text: str) -> SystemMessage:
    given = request.system_message
    if given is None:
        return SystemMessage(text)
    if isinstance(given.content, str):
        return given.model_copy(update={"content": f"{given.content}\n\n{text}"})
    return given.model_copy(update={"content": [*given.content, {"type": "text", "text": text}]})


def _hands_on(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and function.get("name") in DELEGATING_TOOLS
