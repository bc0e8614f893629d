"""Calls a model: what it reads, with what it is bound, and what of its budget is reserved."""
