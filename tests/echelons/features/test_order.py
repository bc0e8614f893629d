"""In which order the hooks of features run: the first of `registry.FEATURES` stands outermost."""

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from echelons import Agent, Budget, Permissions, Session
from echelons.features.feature import AgentHooks, Outcome, collect, compose
from echelons.middleware import DelegationMiddleware
from echelons.plans import Plan, run_plan_steps
from echelons.testing import ScriptedModel, delegate


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


ATTEMPT = {
    "DelegationCalls.invoke": "wrap_delegation",
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


class Passing(DelegationMiddleware):
    def wrap_delegation(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(request)


def test_attempt_passes_each_place_in_order() -> None:
    scout = Agent("scout", permissions=Permissions(budget=Budget(calls=5)))
    head = Agent(
        "head",
        model=ScriptedModel({"head": [delegate("scout", "look"), "over"], "scout": ["seen"]}),
        subordinates=[scout],
        middleware=[Passing()],
        permissions=Permissions(approvals={"scout": lambda _: "allow"}),
    )
    called: list[str] = []
    session = Session(head, ":memory:")

    def note(frame: FrameType, event: str, _: object) -> None:
        place = ATTEMPT.get(frame.f_code.co_qualname)
        is_delegating = place == "wrap_delegation" or called
        if event == "call" and place and is_delegating and place not in called:
            called.append(place)

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        text = session.send("go").result().text
    finally:
        threading.setprofile(None)
        sys.setprofile(None)

    assert (text, called) == ("over", [*ATTEMPT.values()])
