"""What it takes to bring a request to its model, in calls of functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import RunnableConfig

from benchmarks.model import QuickModel
from benchmarks.trees import look_up
from echelons.models.bound_model import BoundModel
from echelons.models.door import ask
from echelons.models.notices import View, with_view
from echelons.plans import run_plan_steps

MOST = 70
"""Calls around a model's, for which the plan and the request are built."""
SYSTEM = SystemMessage("You are root.")


def make_turn(number: int) -> list[BaseMessage]:
    call = {"name": "look_up", "args": {"subject": "Rome"}, "id": f"c{number}"}
    return [
        HumanMessage(f"task {number}", id=f"h{number}"),
        AIMessage("", name="root", tool_calls=[call], id=f"a{number}"),
        ToolMessage("found Rome", tool_call_id=f"c{number}", name="look_up", id=f"t{number}"),
        AIMessage("done", name="root", id=f"f{number}"),
    ]


def count_calls(work: Callable[[], Any]) -> int:
    calls = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def count_added_calls(turns: int) -> int:
    """Return how many calls the last step of a long thread makes beside those of its model."""
    bound = BoundModel.from_runnable(QuickModel().bind_tools([look_up]))
    config: RunnableConfig = with_view({"configurable": {}}, View("~123456789012"))
    past = [message for number in range(turns) for message in make_turn(number)]
    new = make_turn(turns)
    run_plan_steps(ask(bound, [SYSTEM, *past, new[0]], config))
    messages = [SYSTEM, *past, *new[:3]]
    whole = count_calls(lambda: run_plan_steps(ask(bound, messages, config)))

    def call_model() -> None:
        prompt = ChatPromptValue(messages=[SYSTEM, *messages])
        bound.model.invoke(prompt, config, **bound.arguments)

    return whole - count_calls(call_model)


def test_way_to_a_model_takes_few_calls_however_long_the_thread_is() -> None:
    short, long = count_added_calls(2), count_added_calls(200)

    assert short <= MOST
    assert long == short
