"""What an agent's model reads of a long conversation: a window, summaries and pins."""
