"""The sample teams: loaded by name, nothing imports them."""
