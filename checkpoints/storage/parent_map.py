"""The map `parents` in a checkpoint's metadata: the checkpoints above it, one for each graph.

LangGraph stores all of them in every row, so the file grows with the cube of the depth. If the
nearest parent's own row has the others, only the nearest is stored here; reading follows it up
again. A map that contains the root, the empty namespace, is complete.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

ROOT_NAMESPACE = ""
"""The namespace of a thread's outermost graph."""
MAX_CACHED_MAPS = 4096
"""Number of checkpoints whose maps are cached, so that writing needs no reading."""

CheckpointPlace = tuple[str, str, str]
"""Thread id, namespace and checkpoint id."""
Parents = Mapping[str, str]


class ParentMap:
    """Cache of the parent maps of the checkpoints that were stored last."""

    def __init__(self) -> None:
        self._maps: OrderedDict[CheckpointPlace, Parents] = OrderedDict()

    def shorten(self, thread_id: str, parents: Parents) -> Parents:
        """Return the part of a map to store: all of it, unless the nearest parent has the rest."""
        if len(parents) < 2:
            return parents
        nearest = max(parents, key=len)
        above = self._maps.get((thread_id, nearest, parents[nearest]))
        if above is None or {**above, nearest: parents[nearest]} != parents:
            return parents
        return {nearest: parents[nearest]}

    def remember(self, place: CheckpointPlace, parents: Parents) -> None:
        """Cache the map of a checkpoint that was committed."""
        self._maps[place] = parents
        if len(self._maps) > MAX_CACHED_MAPS:
            self._maps.popitem(last=False)

    def clear(self) -> None:
        """Clear the cache: checkpoints may have been deleted."""
        self._maps.clear()


def complete_parents(parents: Parents, above: Callable[[str, str], Parents]) -> dict[str, str]:
    """Return a stored map, completed with the parents above those in it.

    Args:
        parents: The stored map.
        above: Returns the stored map of the checkpoint with a namespace and id; an empty one if
            there is none.
    """
    found = dict(parents)
    while found and ROOT_NAMESPACE not in found:
        highest = min(found, key=len)
        # A damaged map may lead back down.
        higher = above(highest, found[highest])
        new = {name: each for name, each in higher.items() if name < highest}
        if not new:
            break
        found = {**new, **found}
    return found
