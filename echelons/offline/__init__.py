"""The offline planner, a chat model that plans by rules, and the language rules of routing."""
