"""Durability: the SQLite checkpointer, the threads' lineage, and what is read from them."""
