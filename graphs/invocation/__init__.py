"""What surrounds a run of a tree: its input, its services, its resume."""
