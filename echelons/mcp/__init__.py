"""MCP, the Model Context Protocol: tools from servers, and teams as tools; needs its extra."""

from echelons.errors import missing_extra

try:
    import langchain_mcp_adapters
    import mcp
except ModuleNotFoundError as error:
    raise missing_extra("mcp", error.name or "mcp") from error

from echelons.mcp.mcp_servers import HttpServer, McpServer, StdioServer
from echelons.mcp.mcp_tools import McpTools, open_mcp_tools

__all__ = ["HttpServer", "McpServer", "McpTools", "StdioServer", "open_mcp_tools"]

del langchain_mcp_adapters, mcp
