"""Notes that agents with one superior share."""
