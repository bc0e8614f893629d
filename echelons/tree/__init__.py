"""The tree: its members, their names, traversal, drawing and roster."""
