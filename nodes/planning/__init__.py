"""Turns a model's reply into calls, requests, threads and answers."""
