"""`ApprovalsFeature`: the approval of requests to subordinates."""

from __future__ import annotations

from typing import ClassVar

from echelons.features.approvals.records import APPROVAL
from echelons.features.approvals.requests import RequestApprovals
from echelons.features.feature import AttemptHooks, Feature, RequestPlace


class ApprovalsFeature(Feature):
    """Requests that a person has to approve before they run."""

    name: ClassVar[str] = "approvals"
    records = (APPROVAL,)

    def bind_request(self, place: RequestPlace) -> AttemptHooks:
        """Return the approval of requests, which a stored question needs also without a rule."""
        return RequestApprovals(place.rules, place.decisions, place.history)


FEATURE = ApprovalsFeature()
