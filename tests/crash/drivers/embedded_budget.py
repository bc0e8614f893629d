"""Runs a tree with a budget as a node of a foreign graph, until its process dies or it has ended.

``python -m tests.crash.drivers.embedded_budget DATABASE [CALL]`` dies in a model call, such as
``scout/2``, the second one of that agent; without one it goes on, and prints its last answer and
its charges as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.graph import START, MessagesState, StateGraph

from echelons import Agent, Permissions, SqliteCheckpointer
from echelons.guards.budget import Budget
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.accounts import check_accounts, read_charges
from tests.told_lines import get_last


def look() -> str:
    """Look."""
    return "seen"


def main(database: str, dies: str = "") -> None:
    """Begin the graph, or go on with it."""

    def speak(name: str, first: Any) -> Any:
        def reply(messages: Sequence[BaseMessage]) -> Reply:
            is_first = get_last(messages).type != "tool"
            if dies == f"{name}/{1 if is_first else 2}":
                os.kill(os.getpid(), signal.SIGKILL)
            if is_first:
                return Reply("", calls=[first], usage=(100, 10))
            return Reply(f"{name} is done", usage=(200, 20))

        return reply

    script = {
        "head": speak("head", delegate("scout", "go")),
        "scout": speak("scout", Call("look", {})),
    }
    budget = Permissions(budget=Budget(tokens=50_000))
    scout = Agent("scout", tools=[look])
    head = Agent("head", model=ScriptedModel(script), subordinates=[scout], permissions=budget)
    builder = StateGraph(MessagesState)
    builder.add_node("tree", head.compile())
    builder.add_edge(START, "tree")
    with SqliteCheckpointer(database) as saver:
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}}
        given: Any = {"messages": [("user", "go")]} if dies else None
        # Else the tree begins again where the checkpoint above it was not stored yet.
        end = graph.invoke(given, config, durability="sync")
        check_accounts(saver, "t")
        charges = read_charges(saver, "t").values()
        states = sorted((each.path, each.state, each.tokens > 0) for each in charges)
        print(json.dumps({"text": end["messages"][-1].text, "charges": states}))


if __name__ == "__main__":
    main(*sys.argv[1:])
