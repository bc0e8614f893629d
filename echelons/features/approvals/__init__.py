"""Calls and requests that a person has to approve before they run."""
