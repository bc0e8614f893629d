"""What agents can do: declared or derived, and put together to the map of a tree."""

from __future__ import annotations

from echelons.capabilities.asking import ModelDeriver
from echelons.capabilities.capability import Capability, Declared, declared
from echelons.capabilities.deriving import DERIVED, Deriver, Learner, derive, texts_of
from echelons.capabilities.keeping import Derivation, Kept
from echelons.capabilities.mapping import CapabilityMap

__all__ = [
    "DERIVED",
    "Capability",
    "CapabilityMap",
    "Declared",
    "Derivation",
    "Deriver",
    "Kept",
    "Learner",
    "ModelDeriver",
    "declared",
    "derive",
    "texts_of",
]
