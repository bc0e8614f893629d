"""Messages to agents: from the user, their superior, and the agents beside them."""
