"""In which order the hooks of features run: the first of `registry.FEATURES` stands outermost."""

from collections.abc import Callable

from echelons.features.feature import AgentHooks, Outcome, collect, compose
from echelons.plans import Plan, run_plan_steps


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
