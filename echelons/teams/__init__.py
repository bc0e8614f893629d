"""The sample teams, loaded by name; no other module imports them."""
