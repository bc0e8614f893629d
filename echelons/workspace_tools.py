"""The tools with which agents work on the files of a workspace, and share notes.

Examples:
    >>> from echelons import Agent
    >>> from echelons.workspace_tools import file_tools, note_tools
    >>> writer = Agent("writer", tools=[*file_tools(), *note_tools()])
"""

from echelons.features.notes.feature import note_tools
from echelons.features.workspace.tools import file_tools, review_tools

__all__ = ["file_tools", "note_tools", "review_tools"]
