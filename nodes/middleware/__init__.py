"""LangChain's agent middleware around the steps of a level; imported only where there is any."""
