"""Pure functions over a whole tree: traversal, validation, fingerprint, capabilities."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from echelons.errors import ConfigurationError, duplicate_name
from echelons.guards.limits import MAX_DEPTH
from echelons.tree.members import Member
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class TreePlace:
    """A member of a tree, and the names from the root down to the member itself."""

    member: Member
    path: tuple[str, ...]

    @property
    def path_text(self) -> str:
        """The path as a string, such as `head/experiences/restaurants`."""
        return PATH_SEPARATOR.join(self.path)


def walk_tree(root: Member) -> Iterator[TreePlace]:
    """Yield every member with its path, depth first, subordinates in order.

    Raises:
        ConfigurationError: A member is below itself.
    """
    stack = [(TreePlace(root, (root.name,)), frozenset({id(root)}))]
    while stack:
        place, above = stack.pop()
        yield place
        for subordinate in reversed(place.member.subordinates):
            path = (*place.path, subordinate.name)
            if id(subordinate) in above:
                raise ConfigurationError(
                    "the tree has a cycle: {path: -> }; every agent has one superior",
                    code="cyclic_tree",
                    path=path,
                )
            stack.append((TreePlace(subordinate, path), above | {id(subordinate)}))


def list_monitors(member: Member) -> Sequence[Any]:
    """Return the monitors that a member of a tree has."""
    found: Sequence[Any] = getattr(member, "monitors", ())
    return found


def check_tree(root: Member, depth: int) -> None:
    """Check that a tree has no cycles, unique names, and at most `depth` levels.

    Raises:
        ConfigurationError: A member is below itself.
        ConfigurationError: Two agents have the same name.
        ConfigurationError: There are more levels.
    """
    places: dict[str, TreePlace] = {}
    deepest = 0
    for place in walk_tree(root):
        other = places.setdefault(place.member.name, place)
        if other is not place:
            raise duplicate_name(place.member.name, (other.path_text, place.path_text))
        deepest = max(deepest, len(place.path))
    if deepest > depth:
        remedy = ", or raise the root's Limits(depth=...) up to {maximum}"
        if deepest > MAX_DEPTH:
            remedy = ": no tree may be deeper than {maximum} levels"
        raise ConfigurationError(
            f"the tree is {{depth}} levels deep, the limit is {{limit}}; flatten it{remedy}",
            code="tree_too_deep",
            depth=deepest,
            limit=depth,
            maximum=MAX_DEPTH,
        )


def measure_heights(root: Member, with_spawned: bool = False) -> dict[str, int]:
    """Return the number of levels from each member down, itself included, by its name.

    Args:
        root: The root of the tree.
        with_spawned: Whether levels count that may be made at run time.
    """
    heights: dict[str, int] = {}
    for place in walk_tree(root):
        below = sum(_list_spawned_levels(place.member)) if with_spawned else 0
        for levels, name in enumerate(reversed(place.path), start=1 + below):
            heights[name] = max(levels, heights.get(name, 0))
    return heights


def fingerprint_tree(root: Member) -> str:
    """Return a short digest of a tree's names and shape, equal in every process.

    Of each member it covers what decides which nodes it has: its path, its kind, whether it has
    tools, and how many levels of subordinates it may make at run time. Prompts, models and the
    tools themselves are left out, since a stored run can be resumed after they have changed.
    """
    members = sorted(
        (
            place.path_text,
            type(place.member).__name__,
            bool(getattr(place.member, "tools", ())),
            *_list_spawned_levels(place.member),
        )
        for place in walk_tree(root)
    )
    return hashlib.sha256(json.dumps(members).encode()).hexdigest()[:16]


def _list_spawned_levels(member: Member) -> tuple[int, ...]:
    spawn = getattr(getattr(member, "permissions", None), "spawn", None)
    return (spawn.levels,) if spawn else ()


def collect_capabilities(member: Member) -> dict[str, float]:
    """Return the capabilities declared in a subtree, each with its highest confidence."""
    best: dict[str, float] = {}
    for place in walk_tree(member):
        for capability, confidence in place.member.capabilities.items():
            best[capability] = max(confidence, best.get(capability, 0.0))
    return best
