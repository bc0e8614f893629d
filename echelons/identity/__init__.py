"""Identity: derived thread ids, the lineage of a run, and the history of a thread."""
