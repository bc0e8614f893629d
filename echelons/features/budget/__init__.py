"""The budgets of agents: grants, charges, and the rest of them."""
