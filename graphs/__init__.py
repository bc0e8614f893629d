"""The wiring: states, edges, the level graph and the delegation graph."""
