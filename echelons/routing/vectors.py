"""Vector arithmetic in plain Python, enough to compare a text with a tree of agents."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, isfinite, sqrt
from operator import add, mul
from typing import Any

Vector = tuple[float, ...]


def normalize_vector(values: Sequence[float]) -> Vector:
    """Return the unit vector in the same direction; a zero vector stays zero.

    >>> normalize_vector([3.0, 4.0])
    (0.6, 0.8)
    """
    length = sqrt(fsum(value * value for value in values)) or 1.0
    return tuple(value / length for value in values)


def dot(one: Vector, other: Vector) -> float:
    """Return the inner product: for unit vectors, the cosine of their angle."""
    return float(sum(map(mul, one, other)))


def add_vectors(one: Vector, other: Vector) -> Vector:
    """Return the sum of two vectors.

    >>> add_vectors((1.0, 2.0), (0.5, 0.0))
    (1.5, 2.0)
    """
    return tuple(map(add, one, other))


def compute_centroid(vectors: Sequence[Vector]) -> Vector:
    """Return the centroid of vectors, scaled to length 1."""
    return normalize_vector([fsum(each) for each in zip(*vectors, strict=True)])


def compute_mean_cosine(vectors: Sequence[Vector]) -> float:
    """Return the mean cosine over pairs of unit vectors; 0 for fewer than two vectors."""
    many = len(vectors)
    if many < 2:
        return 0.0
    total = [fsum(each) for each in zip(*vectors, strict=True)]
    # The square of the sum has every pair twice, and every vector once with itself.
    return (fsum(value * value for value in total) - many) / (many * (many - 1))


def is_vector(given: Any, size: int | None) -> bool:
    """Return whether a value is a non-empty list of finite numbers, of length `size` if given."""
    if not isinstance(given, Sequence) or isinstance(given, str) or not len(given):
        return False
    numbers = all(isinstance(value, (int, float)) and isfinite(value) for value in given)
    return numbers and size in (None, len(given))
