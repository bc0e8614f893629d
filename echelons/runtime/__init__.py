"""Running a tree: sessions, runs, and the events that they stream."""
