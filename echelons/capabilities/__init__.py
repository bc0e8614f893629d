"""Capabilities of agents: declared or derived, and combined into the map of a tree."""

from __future__ import annotations

from echelons.capabilities.capability import Capability, DeclaredCapabilities, check_capabilities
from echelons.capabilities.capability_map import (
    DERIVED_CONFIDENCE,
    CapabilityMap,
    Derivation,
    DerivationStore,
    Deriver,
    ModelDeriver,
    TreeDeriver,
    collect_texts,
    derive_from_names,
)

__all__ = [
    "DERIVED_CONFIDENCE",
    "Capability",
    "CapabilityMap",
    "DeclaredCapabilities",
    "Derivation",
    "DerivationStore",
    "Deriver",
    "ModelDeriver",
    "TreeDeriver",
    "check_capabilities",
    "collect_texts",
    "derive_from_names",
]
