"""How a tool is run: at most once, with its questions to people."""
