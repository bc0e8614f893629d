"""What stands between an agent and its next step: gates, limits, deadlines, circuit breakers."""
