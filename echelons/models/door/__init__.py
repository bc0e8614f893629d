"""The one way to a chat model, for every request that the library makes of one.

`ask` sends a request and charges it to budgets, `ask_beside` one beside an agent's own step.
"""
