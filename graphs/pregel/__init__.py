"""Adaptations of LangGraph's engine, `Pregel`."""
