"""Subordinates that agents make at run time."""
