"""Adaptations of LangGraph's engine."""
