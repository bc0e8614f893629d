"""`StdioServer` and `HttpServer`: where an MCP server is, and what of it may be used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from echelons.errors import InvalidSetting
from echelons.text.error_lines import remember_secrets


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The base of both kinds of server.

    Attributes:
        name: Its name in messages and questions; by default that of the program or the host.
        tools: Names of the tools to take; all if left out. Only these are checked.
        prefix: Whether the tools are called `NAME_TOOL`, so that those of two servers differ.
        timeout: Seconds for the start of the server and the list of its tools.
        call_timeout: Seconds in which a call must end; `None` for no limit. A call that has not
            ended may have happened (`CallCutShort`).
        parallel: Whether its calls run at the same time. By default, they run one after another, so
            that it is known which call a question of the server is about; with `parallel`, what
            it asks during several calls is declined.

    Raises:
        InvalidSetting: `tools` or `args` is one text.
    """

    name: str = ""
    tools: Collection[str] | None = None
    prefix: bool = False
    timeout: float = 30.0
    call_timeout: float | None = 120.0
    parallel: bool = False

    def __post_init__(self) -> None:
        # A text is a collection, too: of characters.
        for setting in ("tools", "args"):
            value = getattr(self, setting, None)
            if isinstance(value, str):
                raise InvalidSetting(type(self).__name__, setting, value, "give a list of texts")
        if isinstance(env := getattr(self, "env", None), Mapping):
            remember_secrets(env)


@dataclass(frozen=True)
class StdioServer(ServerOptions):
    """An MCP server that is started as a process of its own, and ends with the connection.

    Attributes:
        command: The program.
        args: Its arguments.
        env: Its environment. Of ours, the process gets nothing but what a program needs to start:
            on Linux and macOS `HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM` and `USER`.
        cwd: The folder in which it runs; ours if left out.

    Examples:
        >>> StdioServer("uvx", ["mcp-server-time"]).label
        'uvx'
    """

    command: str
    args: Sequence[str] = ()
    # Neither these nor headers belong in a log: they hold keys.
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | Path | None = None

    @property
    def label(self) -> str:
        """Its name, or that of its program."""
        return self.name or Path(self.command).name


@dataclass(frozen=True)
class HttpServer(ServerOptions):
    """An MCP server at an address, over streamable HTTP.

    Attributes:
        url: Its address, such as `"https://example.com/mcp"`.
        headers: Headers of each request, such as `Authorization`.

    Examples:
        >>> HttpServer("https://docs.example.com/mcp").label
        'docs.example.com'
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """Its name, or its host."""
        return self.name or urlsplit(self.url).hostname or self.url


McpServer: TypeAlias = StdioServer | HttpServer
"""A server of either kind."""
