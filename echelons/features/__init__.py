"""Abilities and rules of agents beside the loop: one folder for each feature."""
