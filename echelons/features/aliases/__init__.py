"""Names for people: aliases of agents that are made at run time."""
