"""The memory of an agent: what its model reads of a long conversation."""
