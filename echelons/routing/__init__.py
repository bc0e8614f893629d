"""Finds the agents of a tree that fit a task, with the reasons; nothing here runs an agent."""

from __future__ import annotations

from echelons.routing.embedding_matcher import EmbeddingMatcher
from echelons.routing.lexical_matcher import THRESHOLD, LexicalMatcher
from echelons.routing.matcher import Match, Matcher, PreparedMatcher, Profile
from echelons.routing.model_matcher import ModelMatcher
from echelons.routing.ranking import DEPTH_PENALTY, Candidate, Route
from echelons.routing.router import Router
from echelons.routing.task_splitter import Part

__all__ = [
    "DEPTH_PENALTY",
    "THRESHOLD",
    "Candidate",
    "EmbeddingMatcher",
    "LexicalMatcher",
    "Match",
    "Matcher",
    "ModelMatcher",
    "Part",
    "PreparedMatcher",
    "Profile",
    "Route",
    "Router",
]
