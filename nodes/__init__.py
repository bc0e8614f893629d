"""The LangGraph nodes of a level, one file each: a pure core with a sync and an async form."""
