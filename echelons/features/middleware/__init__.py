"""LangChain's middleware in an agent's level, and middleware of ours. Needs `langchain`."""
