"""Files that agents read, and to which they propose changes."""
