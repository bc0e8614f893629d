"""The tools with which an agent works on the files of a workspace, to be given to it.

Examples:
    >>> from echelons import Agent
    >>> from echelons.workspace_tools import file_tools
    >>> writer = Agent("writer", tools=file_tools())
"""

from echelons.nodes.tool_execution.file_tools import file_tools

__all__ = ["file_tools"]
