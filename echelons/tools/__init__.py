"""Safe tools for teams: each is an ordinary LangChain tool, for any agent."""

from echelons.tools.calculator import build_calculate
from echelons.tools.code_runner import CodeResult, CodeRunner, build_code_tool
from echelons.tools.http_get import build_http_get
from echelons.tools.text_lines import build_text_tools

__all__ = [
    "CodeResult",
    "CodeRunner",
    "build_calculate",
    "build_code_tool",
    "build_http_get",
    "build_text_tools",
]
