"""Building trees: what it costs to declare and compile them before anything runs.

Our levels compile when they are first touched, hence two figures: as it is used, and with
every level touched.
"""

from __future__ import annotations

from echelons.graphs.compiled_tree import AgentGraph
from tests.benchmarks.handwritten import handwritten
from tests.benchmarks.measure import Say, Scale, interleave
from tests.benchmarks.report import Row, Target, versus
from tests.benchmarks.trees import Role, organisation, ours

OURS, TOUCHED, THEIRS = "ours", "ours, every level touched", "hand-written"
SLOWER = 3


def run(scale: Scale, say: Say) -> list[Row]:
    """Build a tree of some dozens, and one of thousands."""
    small, big = organisation(scale.agents, 12), organisation(scale.population, 40)
    costs = interleave(
        {
            OURS: lambda number: build(small),
            TOUCHED: lambda number: touch(build(small)),
            THEIRS: lambda number: handwritten(small).compile(),
        },
        scale.rounds,
        lambda what: say(f"{scale.agents} agents, {what}"),
    )
    many = interleave(
        {OURS: lambda number: build(big)},
        scale.fewer(SLOWER),
        lambda what: say(f"{scale.population} agents, {what}"),
    )
    work, folders = f"build {scale.agents} agents", f"build {scale.population} agents in folders"
    return [
        *versus(work, costs[OURS], THEIRS, costs[THEIRS], Target(1.5)),
        *versus(f"{work}, every level touched", costs[TOUCHED], THEIRS, costs[THEIRS], Target(1.5)),
        Row(folders, "CPU ms", many[OURS].cpu),
    ]


def build(role: Role) -> AgentGraph:
    """Declare and compile a tree."""
    return ours(role).compile()


def touch(graph: AgentGraph) -> int:
    """Look at every level of a tree, and return how many graphs it has."""
    return sum(1 for _ in graph.get_subgraphs(recurse=True))
