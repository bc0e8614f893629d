"""`HeldAttempts`: when the attempts began whose steps a run holds, to deliver an answer.

A held subordinate waits for nobody, so its time goes on when it is resumed, while that of an agent
which has waited for a person starts again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


class HeldAttempts:
    """The beginnings of held attempts, by the namespaces of their tasks, in seconds of a clock."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[str, float]] = {}

    def find_begin(self, config: Mapping[str, Any]) -> float | None:
        """Return when the attempt of a config began, `None` if it was not held."""
        found = self._begun.get(_get_namespace(config))
        return found[1] if found else None

    def keep(self, config: Mapping[str, Any], begun: float) -> None:
        """Keep when the attempt of a config began, which is held now."""
        path = str(config["metadata"].get("agent_path", ""))
        self._begun[_get_namespace(config)] = path, begun

    def forget(self, config: Mapping[str, Any]) -> None:
        """Forget an attempt that waits for a person, or has ended."""
        self._begun.pop(_get_namespace(config), None)

    def restart(self, paths: Collection[str]) -> None:
        """Let the time of the agents at some paths start again, as a person has answered there."""
        for namespace, (path, _) in [*self._begun.items()]:
            if path in paths:
                del self._begun[namespace]


def _get_namespace(config: Mapping[str, Any]) -> str:
    return str(config["configurable"].get("checkpoint_ns", ""))
