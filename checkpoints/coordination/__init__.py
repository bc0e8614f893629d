"""What runs agree on through the ledger: turns, effects, limits, orders, races, circuits."""
