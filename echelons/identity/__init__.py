"""Whose conversation it is: thread ids, lineage, and the past of a thread."""
