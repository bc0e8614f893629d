"""Text: sanitizing, size limits, words and their stems, exceptions as one line."""
