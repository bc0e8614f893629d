"""Agents that read what others do, and report or alert, but never act."""
