"""`RelayedRequest`: a request to an agent further down, as each level on the way stores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from echelons.delegation.request import DelegationRequest


@dataclass(frozen=True, slots=True)
class RelayedRequest:
    """A request that a level relays.

    Attributes:
        request: The request as received by the level.
        reset: Whether it starts new conversations on its way.
    """

    request: DelegationRequest
    reset: bool = False

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"request": self.request.stored(), "reset": self.reset}

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> RelayedRequest:
        """Return the relayed request from the JSON of `stored`.

        Raises:
            UnreadableRecord: The request is damaged.
        """
        return cls(DelegationRequest.load(stored["request"]), bool(stored["reset"]))

    @property
    def next_agent(self) -> str:
        """The next agent on its route."""
        return self.request.route[0]

    def build_next_request(self, id: str) -> DelegationRequest:
        """Return the request for the next agent.

        Args:
            id: The id of the new request.
        """
        request = self.request
        return request.model_copy(
            update={
                "id": id,
                "current": self.next_agent,
                "path": (*request.path, self.next_agent),
                "route": request.route[1:],
            }
        )
