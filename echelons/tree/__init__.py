"""The tree: its members, their names, and what is asked of it as a whole."""
