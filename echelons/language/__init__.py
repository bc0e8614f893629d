"""The text of a task: its tokens, clauses, requested words, and the subordinates it names."""
