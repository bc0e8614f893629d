"""Messages of agents and people beside tasks and answers."""
