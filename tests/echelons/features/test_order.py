"""In which order the hooks of features run: the first of `registry.FEATURES` stands outermost."""

import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import pytest

from echelons import Agent, Budget, DelegationPolicy, Permissions, Session, Spawn
from echelons.features.feature import AgentHooks, Outcome, Place, collect, compose
from echelons.features.registry import FEATURES, bind_features
from echelons.memory import Memory
from echelons.middleware import DelegationMiddleware
from echelons.plans import Plan, run_plan_steps
from echelons.testing import Call, ScriptedModel, delegate


class Noting(AgentHooks):
    def __init__(self, name: str, noted: list[str]) -> None:
        self._name, self._noted = name, noted

    def around_step(  # type: ignore[override]
        self, step: str, proceed: Callable[[str], Plan[Outcome]]
    ) -> Plan[Outcome]:
        self._noted.append(f"{self._name} before {step}")
        outcome = yield from proceed(f"{step}+{self._name}")
        self._noted.append(f"{self._name} after")
        return outcome


def test_first_hook_stands_outermost() -> None:
    noted: list[str] = []
    hooks = [Noting("outer", noted), AgentHooks(), Noting("inner", noted)]

    def innermost(step: str) -> Plan[Outcome]:
        yield from ()
        noted.append(step)
        return Outcome()

    run_plan_steps(compose(collect(hooks, "around_step", AgentHooks), innermost)("step"))

    assert noted == [
        "outer before step",
        "inner before step+outer",
        "step+outer+inner",
        "inner after",
        "outer after",
    ]


def test_hooks_that_are_not_overridden_are_not_collected() -> None:
    assert collect([AgentHooks()], "around_step", AgentHooks) == ()


def test_features_stand_in_order() -> None:
    assert [entry.name for entry in FEATURES] == [
        *("budget", "approvals", "mail", "spawning", "questions", "dismissal", "aliases"),
        *("memory", "monitors", "workspace", "notes"),
    ]


@pytest.mark.parametrize(
    ("hook", "classes"),
    [
        ("has_news", ["MailHooks"]),
        ("around_step", ["BudgetHooks", "MailHooks", "SpawningHooks"]),
        ("prepare_prompt", ["MemoryHooks"]),
        ("around_model", ["MailHooks"]),
    ],
)
def test_hook_is_run_by_features_in_order(hook: str, classes: list[str]) -> None:
    agent = Agent(
        "head",
        subordinates=[Agent("clerk")],
        memory=Memory(),
        permissions=Permissions(spawn=Spawn()),
    )
    place = Place(agent=agent, model=None, can_call=True, reports=False, policy=DelegationPolicy())

    found: list[Any] = [*collect(bind_features(place), hook, AgentHooks)]

    assert [type(method.__self__).__name__ for method in found] == classes


def test_model_reads_warning_then_message_then_notice_of_subordinates() -> None:
    def look() -> str:
        """Look around."""
        session.send_message("head", "Hurry.")
        session.dismiss("head/clerk")
        return "seen"

    model = ScriptedModel([Call("look"), "over"])
    head = Agent("head", model=model, tools=[look], subordinates=[Agent("clerk")])
    session = Session(head, ":memory:")

    session.send("go", budget=Budget(calls=2, warn_at=0.5)).result()

    texts = [str(message.text) for message in model.calls[-1].messages[-3:]]
    for text, words in zip(texts, ("1 of 2 model calls", "Hurry.", "clerk."), strict=True):
        assert words in text


class Passing(DelegationMiddleware):
    def wrap_delegation(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(request)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(request)


def trace(head: Agent, places: Mapping[str, str], first: str) -> list[str]:
    """Return the places that a turn passes, in the order of their first calls after `first`."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_qualname
        place = places.get(name)
        if event == "call" and place and (called or name == first) and place not in called:
            called.append(place)

    session = Session(head, ":memory:")
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        assert session.send("go").result().text == "over"
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return called


STEP = {
    "BudgetHooks.around_step": "warnings",
    "MailHooks.around_step": "mail",
    "SpawningHooks.around_step": "subordinates",
    "ModelCalls.around_step": "middleware",
    "PromptMemory.shorten": "memory",
    "MailHooks.around_model": "cut",
    "StopHooks.around_model": "stop",
    "ModelCalls.around_model": "middleware of the model",
    "Passing.wrap_model_call": "wrap_model_call",
    "ask": "model",
}
"""The functions around a step and its model call, in the order in which they are first called."""


def test_step_passes_each_place_in_order() -> None:
    head = Agent(
        "head",
        model=ScriptedModel(["over"]),
        subordinates=[Agent("clerk")],
        middleware=[Passing()],
        memory=Memory(),
    )

    assert trace(head, STEP, "BudgetHooks.around_step") == [*STEP.values()]


ATTEMPT = {
    "DelegationCalls.around_request": "wrap_delegation",
    "Subordinate._reject_input": "contract",
    "RequestBudget.around_attempt": "budget",
    "RequestApprovals.around_attempt": "approval",
    "TreeGate.enter": "admit",
    "TreeBudgets.admit": "claims",
    "RequestBudget.around_level": "work",
    "TreeBreakers.admit": "breaker",
    "with_deadline": "deadline",
    "run_level": "level",
}
"""The functions around an attempt, in the order in which they are first called."""


def test_attempt_passes_each_place_in_order() -> None:
    scout = Agent("scout", permissions=Permissions(budget=Budget(calls=5)))
    head = Agent(
        "head",
        model=ScriptedModel({"head": [delegate("scout", "look"), "over"], "scout": ["seen"]}),
        subordinates=[scout],
        middleware=[Passing()],
        permissions=Permissions(approvals={"scout": lambda _: "allow"}),
    )

    assert trace(head, ATTEMPT, "DelegationCalls.around_request") == [*ATTEMPT.values()]
