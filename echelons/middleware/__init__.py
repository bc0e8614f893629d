"""Middleware of ours, beside LangChain's: around requests to subordinates. Needs `langchain`."""

from echelons.middleware.delegation import DelegationMiddleware
from echelons.middleware.verification import VerificationMiddleware

__all__ = ["DelegationMiddleware", "VerificationMiddleware"]
