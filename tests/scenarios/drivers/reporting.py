"""A tree whose leaf pays and reports in one message, and the process that dies while it pays.

``python -m tests.scenarios.drivers.reporting DATABASE`` sends the task and kills itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from echelons import Agent, Session
from echelons.testing import Call, Reply, ScriptedModel, delegate, report
from echelons.testing.crash import die
from tests.told_lines import get_last

THREAD = "bill"


def pass_on(subordinate: str) -> Callable[[Sequence[BaseMessage]], Any]:
    def play(messages: Sequence[BaseMessage]) -> Any:
        last = get_last(messages)
        return delegate(subordinate, "go") if last.type == "human" else str(last.text)

    return play


def build_tree(pay: Callable[[], str]) -> Agent:
    """Return a tree of three levels; `pay` is the leaf's tool."""

    def pay_bill() -> str:
        """Pay the bill."""
        return pay()

    scripts: dict[str, Any] = {
        "head": pass_on("mid"),
        "mid": pass_on("leaf"),
        "leaf": [
            Reply("", [Call("pay_bill"), report("fulfilled", "All is paid.")]),
            "The bill is still open.",
        ],
    }
    leaf = Agent("leaf", tools=[pay_bill])
    mid = Agent("mid", subordinates=[leaf])
    return Agent("head", model=ScriptedModel(scripts), subordinates=[mid])


if __name__ == "__main__":
    Session(build_tree(die), sys.argv[1], thread=THREAD).send("go").result()
