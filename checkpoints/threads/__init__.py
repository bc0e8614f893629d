"""Threads read back: conversations, traces, pending work, answers."""
