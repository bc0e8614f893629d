"""What the command line shows: text for people, lines and JSON for programs."""
