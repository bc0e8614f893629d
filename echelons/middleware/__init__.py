"""Middleware of ours, beside LangChain's: around requests to subordinates. Needs `langchain`."""

from echelons.middleware.delegation import DelegationMiddleware
from echelons.middleware.planning import PlanMiddleware, ScoringMiddleware, score_task
from echelons.middleware.verification import VerificationMiddleware

__all__ = [
    "DelegationMiddleware",
    "PlanMiddleware",
    "ScoringMiddleware",
    "VerificationMiddleware",
    "score_task",
]
