"""``Forward``: a request on its way to an agent further down, as each level between keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from echelons.delegation.request import DelegationRequest


@dataclass(frozen=True, slots=True)
class Forward:
    """What a level passes on.

    Attributes:
        request: The request as it came to the level.
        reset: Whether it begins conversations anew on its way.
    """

    request: DelegationRequest
    reset: bool = False

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"request": self.request.stored(), "reset": self.reset}

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Forward:
        """Return what is kept in ``stored``.

        Raises:
            UnreadableRecord: The request is damaged.
        """
        return cls(DelegationRequest.load(stored["request"]), bool(stored["reset"]))

    @property
    def following(self) -> str:
        """Whom it goes to next."""
        return self.request.route[0]

    def passed_on(self, id: str) -> DelegationRequest:
        """Return the request as the next agent gets it.

        Args:
            id: Its id from there.
        """
        request = self.request
        return request.model_copy(
            update={
                "id": id,
                "current": self.following,
                "path": (*request.path, self.following),
                "route": request.route[1:],
            }
        )
