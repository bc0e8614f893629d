"""The features, in the order of their hooks: the first stands outermost.

The registry names features and imports none: an agent's field, a stored record or a command that
needs a feature has it loaded.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from echelons.features.feature import AgentHooks, Feature, Place


class Entry(NamedTuple):
    """A feature by its name, which is that of its folder.

    Attributes:
        name: Its name.
        field: The field of an agent without which it is not needed; empty if it may always be.
    """

    name: str
    field: str = ""


FEATURES: Final[tuple[Entry, ...]] = (
    Entry("mail"),
    Entry("questions"),
    Entry("spawning"),
    Entry("dismissal"),
    # Last: it shortens what all others show a model.
    Entry("memory", "memory"),
)


@cache
def load_feature(name: str) -> Feature:
    """Return a feature, which is the object `FEATURE` of its folder's module `feature`."""
    feature: Feature = import_module(f"echelons.features.{name}.feature").FEATURE
    return feature


def bind_features(place: Place) -> list[AgentHooks]:
    """Return what all features do at the steps of an agent, in their order."""
    bound = [
        load_feature(entry.name).bind(place)
        for entry in FEATURES
        if not entry.field or getattr(place.agent, entry.field)
    ]
    return [hooks for hooks in bound if hooks is not None]
