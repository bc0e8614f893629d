"""State of a tree while it runs: its gate, budgets, dismissals and names."""
