"""`RelayedRequest`: a request to an agent further down, as each level on the way stores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from echelons.delegation.request import DelegationRequest


@dataclass(frozen=True, slots=True)
class RelayedRequest:
    """A request as received by a level that relays it, with new conversations if `reset`."""

    request: DelegationRequest
    reset: bool = False

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"request": self.request.stored(), "reset": self.reset}

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> RelayedRequest:
        """Return the relayed request from the JSON of `stored`."""
        return cls(DelegationRequest.load(stored["request"]), bool(stored["reset"]))

    @property
    def next_agent(self) -> str:
        """The next agent on its route."""
        return self.request.route[0]

    def build_next_request(self, id: str) -> DelegationRequest:
        """Return the request for the next agent, with an id of its own."""
        first, *rest = self.request.route
        path = (*self.request.path, first)
        changed = {"id": id, "current": first, "path": path, "route": tuple(rest)}
        return self.request.model_copy(update=changed)
