"""The travel team: a head with flights, hotels and experiences, on real, sourced facts.

Loaded by name, as `echelons.teams.travel.team:team`; no module of the library imports it.
"""
