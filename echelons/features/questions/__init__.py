"""Questions of agents to their superior and to the user."""
