"""What agents can do: declared or derived, and put together to the map of a tree."""

from __future__ import annotations

from echelons.capabilities.capability import Capability, Declared, declared
from echelons.capabilities.deriving import DERIVED, Deriver, derive, texts_of
from echelons.capabilities.mapping import CapabilityMap

__all__ = [
    "DERIVED",
    "Capability",
    "CapabilityMap",
    "Declared",
    "Deriver",
    "declared",
    "derive",
    "texts_of",
]
