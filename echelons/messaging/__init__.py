"""What agents and people say to each other beside tasks and answers."""
