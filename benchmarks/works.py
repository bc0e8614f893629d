"""What is measured: seven works, each described once for every rival, meter and world.

`chain` is three levels, two model turns each, and one tool call at the leaf. `resume` goes on after
a question that the third level asked. `fan-out` is a root that calls all its subordinates at once.
`turn` is one of a thread that grows by 1.2 KB each, a tool call in it. `continuation` is one
more call of the same subordinate, which answers 2 KB. `middleware` is the chain with three
middleware at each level, `budget` the chain with a budget of its turn.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from langgraph.types import Command

from benchmarks.measure import Scale, in_turn, megabytes, settled
from benchmarks.rivals import (
    AS_IT_COMES,
    BUDGETED,
    CREATE_AGENT,
    CREATE_AGENT_WRAPPED,
    FLOOR,
    KEPT,
    NEW,
    NORMAL,
    NOTHING,
    OURS,
    WRAPPED,
    Field,
    Rival,
    arivals,
    rivals,
)
from benchmarks.trees import SAID, Role, ask, chain, crowd, pair, talker

Sample = TypeVar("Sample")
Meter = Callable[[list[Sample]], AbstractContextManager[None]]
"""Appends to a list what its block costs."""
Place = tuple[str, str]
"""What was done, and who did it."""
World = Literal["async", "sync"]

TASK = "Plan a trip to Italy"
ANSWER = "A subordinate's answer, two thousand characters long. " * 37
WARM_UP = 2
"""Rounds that are run first and not measured: imports, caches, levels compiled when touched."""
NEAR = 5
"""Turns up to the Nth that are measured."""


@dataclass(frozen=True, slots=True)
class Work:
    """One of the works.

    Attributes:
        name: Its name; of a growing one, without the number.
        role: The root of the tree.
        names: Who does it.
        rounds: How often it is measured, each time on a thread of its own.
        marks: Runs on one thread that are measured instead, rising. Only a compiled tree of ours
            and the floor go to the last: the file of a hand-written thread grows with the square
            of its runs.
        said: What the root is given.
        resumes: Whether the answer to a question is measured, not the task before.
        at_once: Threads of a synchronous run; ``None`` as they come.
    """

    name: str
    role: Role
    names: Sequence[str]
    rounds: int = 0
    marks: tuple[int, ...] = ()
    said: str = TASK
    resumes: bool = False
    at_once: int | None = None

    @property
    def runs(self) -> int:
        """How often it is run in all."""
        return max(self.marks, default=WARM_UP + self.rounds)

    def label(self, run: int) -> str:
        """Return what a run, counted from 1, is measured as; empty if it is not."""
        if not self.marks:
            return self.name if run > WARM_UP else ""
        near = [mark for mark in self.marks if mark - NEAR < run <= mark]
        return f"{self.name} {near[0]}" if near else ""

    def rivals(self, field: Field, run: int) -> list[str]:
        """Return who does a run, another one first each time."""
        late = len(self.marks) > 1 and run > self.marks[-2]
        return in_turn([each for each in field if not late or each in (OURS, FLOOR)], run)


def list_works(scale: Scale, timed: bool) -> list[Work]:
    """Return the works.

    Args:
        scale: How much is done.
        timed: Whether seconds are measured. Then the crowd's models take their time, and more
            rivals take part.
    """
    rounds = scale.rounds if timed else scale.counted
    latency = scale.latency if timed else 0.0
    theirs = (AS_IT_COMES, NORMAL) if timed else (AS_IT_COMES,)
    idle = (OURS + NOTHING, AS_IT_COMES + NOTHING) if timed else ()
    sessions = (OURS, NEW, KEPT, *theirs, FLOOR)
    crowded = Work(
        f"fan-out of {scale.crowd}",
        crowd(scale.crowd, latency),
        (OURS, *theirs, FLOOR, *idle),
        rounds // 5 or rounds,
        at_once=scale.crowd,
    )
    return [
        Work("chain", chain(), (*sessions, *idle), rounds),
        Work("resume", chain(ask), (OURS, *theirs), rounds, resumes=True),
        crowded,
        Work("turn", talker(), sessions, marks=scale.turns, said=SAID),
        Work("continuation", pair(ANSWER), (OURS, *theirs), marks=scale.continuations),
        Work("middleware", chain(), (OURS, WRAPPED, CREATE_AGENT, CREATE_AGENT_WRAPPED), rounds),
        Work("budget", chain(), (OURS, BUDGETED), rounds),
    ]


def measure(
    work: Work, world: World, meter: Meter[Sample]
) -> tuple[dict[Place, list[Sample]], dict[Place, float]]:
    """Have all rivals do a work in turn.

    Returns:
        What each run that is measured has cost, and the megabytes of the file at each mark; both
        by the run's label and the rival.
    """
    samples: dict[Place, list[Sample]] = defaultdict(list)
    sizes: dict[Place, float] = {}
    remembers: Literal[True] | None = True if work.marks else None

    async def wait() -> None:
        async with arivals(work.role, work.names, remembers) as field:
            with closing(_list_steps(work, field, meter, samples, sizes)) as steps:
                for rival, given, thread in steps:
                    await rival.ainvoke(given, thread)

    if world == "async":
        asyncio.run(wait())
    else:
        with rivals(work.role, work.names, remembers, work.at_once) as field:
            with closing(_list_steps(work, field, meter, samples, sizes)) as steps:
                for rival, given, thread in steps:
                    rival.invoke(given, thread)
    labels = dict.fromkeys(label for label, _ in samples)
    places = [(label, name) for label in labels for name in work.names]
    return {place: samples[place] for place in places if place in samples}, sizes


def _list_steps(
    work: Work,
    field: Field,
    meter: Meter[Sample],
    samples: dict[Place, list[Sample]],
    sizes: dict[Place, float],
) -> Generator[tuple[Rival, Any, str], None, None]:
    """Yield what is to be run now, and measure until the next is asked for."""
    given: Any = work.said
    if work.resumes:
        for run in range(1, work.runs + 1):
            yield from ((rival, given, f"thread{run}") for rival in field.values())
        given = Command(resume="yes")
    with settled():
        for run in range(1, work.runs + 1):
            label, thread = work.label(run), "thread" if work.marks else f"thread{run}"
            for name in work.rivals(field, run):
                with meter(samples[label, name]) if label else nullcontext():
                    yield field[name], given, thread
                if run in work.marks:
                    sizes[label, name] = megabytes(field[name].database)
