"""Levels that are compiled when they are first touched, so that big trees are made at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from echelons.graphs.level_graph import Builder, entry_of
from echelons.graphs.pregel.direct_entry import Direct


class LevelGraph(Direct):
    """The compiled graph of one level."""


class UntouchedLevel(LevelGraph):
    """A level that compiles itself at its first touch, and then is a `LevelGraph`.

    A tree of thousands is made in milliseconds, and no inspection can tell the difference:
    anything but the type and the two facts below fills it first.
    """

    def __init__(self, name: str, build: Callable[[], Builder]) -> None:
        # Not Pregel's own: there is nothing to hold yet.
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_build", build)

    def __getattribute__(self, key: str) -> Any:
        if key in ("__class__", "__dict__", "__init__"):
            return object.__getattribute__(self, key)
        # LangGraph asks these two of every node's graph while it compiles the superior.
        if key == "checkpointer":
            return None
        if key == "name":
            return object.__getattribute__(self, "_name")
        _fill(self)
        return getattr(self, key)


def _fill(level: UntouchedLevel) -> None:
    held = object.__getattribute__(level, "__dict__")
    builder = held["_build"]()
    first = entry_of(builder)
    compiled = builder.compile(name=held["_name"])
    whole = LevelGraph(entry=lambda given, config: first, **compiled.__dict__)
    # Two threads may both get here; both fill in equal graphs, and the class changes last.
    held.update(whole.__dict__)
    object.__setattr__(level, "__class__", LevelGraph)
