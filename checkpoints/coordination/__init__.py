"""State that runs share through the ledger: turns, effects, orders, mail, races, circuits."""
