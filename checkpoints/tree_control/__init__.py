"""What holds for a tree while it runs: its gate, budgets, monitors, dismissals and names."""
