"""Text: cleaned, measured, taken apart into words, and errors as one line of it."""
