"""What runs share through the ledger: turns, effects, limits, orders, races, circuits."""
