"""A task as text: its tokens, clauses, requested words, and which subordinates it is for."""
