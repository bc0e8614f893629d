"""Delegation to a subordinate: the queue of requests, the attempt, the run of its level."""
