"""What tools do in the world: the journal of it, and the question what became of a call."""
