"""Profiles: agents as folders. A team's folder is its tree.

Reading a folder (`reader`) parses its texts, settings and Python, executes nothing, and notes every
fault. Only `builder` executes the Python, where the caller trusts the folder.
"""
