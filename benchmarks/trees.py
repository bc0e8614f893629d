"""The trees that are measured, each described once for every rival.

``Role`` is the description; ``ours`` makes it an ``Agent``, ``handwritten`` and ``floor``
make of the same roles what they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.tools import BaseTool, tool
from langgraph.types import interrupt

from benchmarks.model import QuickModel
from benchmarks.tally import TALLY
from echelons import Agent, Budget, Permissions

CALL = "call_subordinate"
SAID = "To be or not to be, that is what is asked here. " * 6
"""About 0.3 KB."""


@dataclass(frozen=True, slots=True)
class Role:
    """One agent of a tree, whoever builds it.

    Attributes:
        name: Its name, unique in the tree.
        model: Its model.
        tools: Its tools.
        subordinates: Who works for it.
    """

    name: str
    model: QuickModel
    tools: Sequence[BaseTool] = field(default=(), kw_only=True)
    subordinates: tuple[Role, ...] = field(default=(), kw_only=True)

    @property
    def prompt(self) -> str:
        """Its instructions."""
        return f"You are {self.name}."


@tool
def look_up(subject: str) -> str:
    """Look something up."""
    TALLY.tools += 1
    return f"found {subject}"


@tool
def ask(subject: str) -> str:
    """Ask a human."""
    return f"heard {interrupt(subject)}"


def ours(role: Role) -> Agent:
    """Return the role as an agent."""
    return Agent(
        role.name,
        f"Does what {role.name} does",
        model=role.model,
        prompt=role.prompt,
        tools=role.tools,
        subordinates=[ours(each) for each in role.subordinates],
    )


def budgeted(role: Role) -> Agent:
    """Return the role as an agent whose turns have a budget of tokens and calls for all levels."""
    budget = Budget(tokens=10**9, calls=10**6, estimator=lambda messages, reply: (100, 10))
    return replace(ours(role), permissions=Permissions(budget=budget))


def to(subordinate: str, message: str = "Do your part") -> tuple[str, dict[str, Any]]:
    """Return the call by which a model hands a message to a subordinate."""
    return CALL, {"message": message, "subordinate": subordinate}


def chain(leaf_tool: BaseTool = look_up) -> Role:
    """Return a root, its subordinate and theirs: two model turns each, one tool call."""
    leaf = Role(
        "leaf", QuickModel(wanted=[(leaf_tool.name, {"subject": "Rome"})]), tools=[leaf_tool]
    )
    middle = Role("middle", QuickModel(wanted=[to("leaf")]), subordinates=(leaf,))
    return Role("root", QuickModel(wanted=[to("middle")]), subordinates=(middle,))


def crowd(size: int, latency: float) -> Role:
    """Return a root that calls all of its many subordinates at once."""
    names = [f"member{number}" for number in range(size)]
    members = tuple(Role(name, QuickModel(latency=latency)) for name in names)
    model = QuickModel(wanted=[to(name) for name in names], latency=latency)
    return Role("root", model, subordinates=members)


def pair(answer: str) -> Role:
    """Return a root that calls its one subordinate, which gives the answer."""
    subordinate = Role("writer", QuickModel(answer=answer))
    return Role("root", QuickModel(wanted=[to("writer")]), subordinates=(subordinate,))


def talker() -> Role:
    """Return a root without subordinates, with a tool call in each turn: 1.2 KB of texts a turn."""
    model = QuickModel(wanted=[(look_up.name, {"subject": SAID})], answer=SAID)
    return Role("root", model, tools=[look_up])
