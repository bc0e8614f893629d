"""Delegation: requests down a tree, responses up, and how responses are combined."""

from __future__ import annotations

from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage

__all__ = ["DelegationRequest", "DelegationResponse", "Status", "Usage"]
