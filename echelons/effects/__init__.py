"""Side effects of tools: the effect journal, and the question about an interrupted call."""
