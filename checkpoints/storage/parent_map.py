"""`parents` in a checkpoint's metadata: the checkpoints above it, one for each graph.

LangGraph writes all of them into every row: the file grows with the cube of the depth. Of a row
whose nearest superior is stored with the others, only that one is kept here; reading follows it
up again. A map that holds the root's place, the empty namespace, is whole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

ROOT = ""
"""The namespace of a thread's outermost graph."""
KNOWN = 4096
"""Checkpoints whose maps are remembered, so that nothing is read to write the next."""

Place = tuple[str, str, str]
"""A thread's id, a namespace, and a checkpoint's id."""
Parents = Mapping[str, str]


class Ancestry:
    """What is known of the checkpoints that were stored last."""

    def __init__(self) -> None:
        self._known: OrderedDict[Place, Parents] = OrderedDict()

    def shortened(self, thread_id: str, parents: Parents) -> Parents:
        """Return what has to be stored of a map: all of it, unless the nearest has the rest."""
        if len(parents) < 2:
            return parents
        nearest = max(parents, key=len)
        above = self._known.get((thread_id, nearest, parents[nearest]))
        if above is None or {**above, nearest: parents[nearest]} != parents:
            return parents
        return {nearest: parents[nearest]}

    def stored(self, place: Place, parents: Parents) -> None:
        """Remember the map of a checkpoint that was committed."""
        self._known[place] = parents
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def clear(self) -> None:
        """Forget everything: checkpoints may be gone."""
        self._known.clear()


def whole(parents: Parents, above: Callable[[str, str], Parents]) -> dict[str, str]:
    """Return a map with all that are above the ones in it.

    Args:
        parents: The map as it was stored.
        above: Returns the stored map of the checkpoint with an id in a namespace; an empty one
            if there is none.
    """
    found = dict(parents)
    while found and ROOT not in found:
        highest = min(found, key=len)
        # A damaged map may lead back down.
        new = {
            name: each for name, each in above(highest, found[highest]).items() if name < highest
        }
        if not new:
            break
        found = {**new, **found}
    return found
