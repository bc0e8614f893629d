"""Reads who runs from a node's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echelons.identity.lineage import Identity


def identity_of(config: Mapping[str, Any] | None) -> Identity:
    """Return the identity that a level's graph was started with.

    Raises:
        RuntimeError: The level was started by something else than its tree.
    """
    identity = Identity.read((config or {}).get("metadata") or {})
    if identity is None:
        raise RuntimeError("a level runs without an identity; start it through Agent.compile()")
    return identity
