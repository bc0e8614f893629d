"""Wiring only: the state, the edges, the level graph and the delegation graph."""
