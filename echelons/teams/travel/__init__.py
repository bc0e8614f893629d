"""The travel team: a head with flights, hotels and experiences, on facts that are true.

Loaded by name, as ``echelons.teams.travel.team:team``; nothing of the library imports it.
"""
