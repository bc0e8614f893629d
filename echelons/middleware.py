"""Middleware of ours, beside LangChain's: around requests to subordinates. Needs `langchain`."""

from echelons.features.middleware.delegation import (
    DelegationMiddleware,
    PlanMiddleware,
    ScoringMiddleware,
    VerificationMiddleware,
    score_task,
)

__all__ = [
    "DelegationMiddleware",
    "PlanMiddleware",
    "ScoringMiddleware",
    "VerificationMiddleware",
    "score_task",
]
