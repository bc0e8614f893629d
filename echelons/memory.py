"""The memory of an agent: how much of a long conversation its model reads, and what of the rest."""

from echelons.features.memory.settings import Memory

__all__ = ["Memory"]
