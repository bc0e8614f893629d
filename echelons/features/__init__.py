"""What agents can do or must obey beside the loop: one folder for each feature."""
