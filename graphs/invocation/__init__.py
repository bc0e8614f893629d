"""Before and around a run of a tree: input validation, resume check, services, rerun."""
