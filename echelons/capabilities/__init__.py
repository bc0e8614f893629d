"""Capabilities of agents: declared or derived, and combined into the map of a tree."""

from __future__ import annotations

from echelons.capabilities.capability import Capability, Declared, declared
from echelons.capabilities.capability_map import CapabilityMap
from echelons.capabilities.derivation_store import Derivation, Kept
from echelons.capabilities.deriver import DERIVED, Deriver, Learner, derive, texts_of
from echelons.capabilities.model_deriver import ModelDeriver

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
