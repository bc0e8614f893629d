"""What holds for a tree while it runs: its gate, budgets, dismissals and names."""
