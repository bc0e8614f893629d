"""Checks before an agent's next step: gates, limits, deadlines, circuit breakers."""
