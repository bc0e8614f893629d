"""Middleware of ours, beside LangChain's: around requests to subordinates. Needs `langchain`."""

from echelons.features.middleware.delegation import DelegationMiddleware
from echelons.features.middleware.planning import PlanMiddleware, ScoringMiddleware, score_task
from echelons.features.middleware.verification import VerificationMiddleware

__all__ = [
    "DelegationMiddleware",
    "PlanMiddleware",
    "ScoringMiddleware",
    "VerificationMiddleware",
    "score_task",
]
