"""Levels that are compiled at their first use, so that large trees compile quickly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from echelons.graphs.level_graph import LevelBuilder, get_entry_node
from echelons.graphs.pregel.direct_entry import DirectGraph
from echelons.graphs.state import LevelInput


class LevelGraph(DirectGraph):
    """The compiled graph of one level.

    Attributes:
        carried_keys: Keys of the state with which a request begins as the one before has ended:
            those of the agent's middleware.
    """

    carried_keys: frozenset[str] = frozenset()


class LazyLevel(LevelGraph):
    """A level that compiles itself at the first attribute access, and then is a `LevelGraph`.

    So a tree of thousands of agents compiles only what runs. Inspection sees no difference: only
    the class, and the two attributes below, can be read without compiling.
    """

    def __init__(self, name: str, build: Callable[[], LevelBuilder]) -> None:
        # Not Pregel's `__init__`: there is no graph to hold yet.
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_build", build)

    def __getattribute__(self, key: str) -> Any:
        if key in ("__class__", "__dict__", "__init__"):
            return object.__getattribute__(self, key)
        # LangGraph reads these two of every node's graph while it compiles the superior.
        if key == "checkpointer":
            return None
        if key == "name":
            return object.__getattribute__(self, "_name")
        _compile_level(self)
        return getattr(self, key)


def _compile_level(level: LazyLevel) -> None:
    held = object.__getattribute__(level, "__dict__")
    builder = held["_build"]()
    first = get_entry_node(builder)
    compiled = builder.compile(name=held["_name"])
    # What is passed on to another agent is none of a middleware's.
    relay = "reason" if "reason" in builder.nodes else first
    whole = LevelGraph(
        entry=lambda given, config: relay if given.get("forward") else first, **compiled.__dict__
    )
    keys = frozenset(builder.schemas[builder.input_schema])
    whole.carried_keys = keys - LevelInput.__annotations__.keys()
    # Two threads may both get here; both fill in equal graphs, and the class changes last.
    held.update(whole.__dict__)
    object.__setattr__(level, "__class__", LevelGraph)
