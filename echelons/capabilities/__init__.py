"""Capabilities of agents: declared or derived, and combined into the map of a tree."""

from __future__ import annotations

from echelons.capabilities.capability import Capability, DeclaredCapabilities, check_capabilities
from echelons.capabilities.capability_map import CapabilityMap
from echelons.capabilities.derivation_store import Derivation, DerivationStore
from echelons.capabilities.deriver import (
    DERIVED_CONFIDENCE,
    Deriver,
    TreeDeriver,
    collect_texts,
    derive_from_names,
)
from echelons.capabilities.model_deriver import ModelDeriver

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
