"""Delegation: requests that go down a tree, the responses that come up, and what joins them."""

from __future__ import annotations

from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage

__all__ = ["DelegationRequest", "DelegationResponse", "Status", "Usage"]
