"""Who says what the agents of a tree can do that declare nothing, with the run's own ledger.

``TreeRouter`` asks when the first task of a tree names nobody.
"""

from __future__ import annotations

from langgraph.config import get_config

from echelons.capabilities import Deriver, ModelDeriver, derive
from echelons.checkpoints.coordination.capability_cache import Derived
from echelons.checkpoints.inherited_config import saver_of
from echelons.checkpoints.ledger import ledger_of


def deriver_of(tree: str, given: Deriver | None) -> Deriver:
    """Return a tree's deriver; one that asks a model keeps what it says where the run is kept.

    Args:
        tree: Name of the tree's root.
        given: What the tree was given, if anything.

    Raises:
        RuntimeError: No graph runs here whose saver could be found.
    """
    if not isinstance(given, ModelDeriver):
        return given or derive
    saver = saver_of(get_config().get("configurable", {}))
    return given.kept_in(Derived(ledger_of(saver), tree)) if saver else given
