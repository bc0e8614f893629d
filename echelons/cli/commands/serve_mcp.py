"""`echelons serve-mcp`: teams as the tools of an MCP server."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import database, output
from echelons.cli.command import (
    DatabaseOptions,
    OutputOptions,
    RunTeamOptions,
    check_name,
    command,
    complete_team,
)
from echelons.cli.team_loader import (
    TeamSpec,
    find_team_source,
    list_shipped_teams,
    load_team,
    load_team_profiles,
    resolve_folder,
    takes_documents,
)

if TYPE_CHECKING:
    from asyncio import Runner

    from echelons.mcp.team_server import ServedTeam

TOKEN_VARIABLE = "ECHELONS_MCP_TOKEN"  # noqa: S105  the name of a variable
SHORTEST_TOKEN = 16
"""Characters of a token, at least."""

TeamsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TEAM…",
        help="Shipped teams ([b]travel[/b], [b]research[/b]), or your own: a folder, or "
        "[b]module:agent[/b]. Each is a tool.",
        autocompletion=complete_team,
    ),
]
HttpOption = Annotated[
    bool,
    typer.Option("--http", help="Serve over HTTP on 127.0.0.1, not on the standard streams."),
]
PortOption = Annotated[
    int,
    typer.Option("--port", min=0, max=65535, help="The port; by default a free one."),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help=f"The file with the bearer token of the clients; by default that in {TOKEN_VARIABLE}, "
        "or a new one, which is printed.",
    ),
]


@command(
    "serve-mcp travel",
    "serve-mcp travel office/ --trust --db office.sqlite",
    "serve-mcp research --docs notes/ --http --port 8765 --token-file token.txt",
)
def serve_mcp(  # noqa: PLR0913  its options
    teams: TeamsArgument,
    http: HttpOption = False,
    port: PortOption = 0,
    token_file: TokenOption = None,
    *,
    place: DatabaseOptions,
    making: RunTeamOptions,
    how: OutputOptions,
) -> None:
    """Offer teams as tools to an MCP client, such as an editor or another agent.

    Without [b]--http[/b], one client is served on the standard input and output.
    The tool [b]answer[/b] answers a team's questions, if the client cannot ask its user itself.
    """
    if not http and (port or token_file):
        raise typer.BadParameter("--port and --token-file are for --http")
    if making.docs and not any(map(takes_documents, teams)):
        raise typer.BadParameter("--docs is for a team that answers from documents")
    token = _read_token(token_file) if http else ""

    from asyncio import Runner
    from secrets import token_urlsafe

    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.mcp.team_server import TeamServer
    from echelons.mcp.team_transport import HOST, MCP_PATH, serve_http, serve_stdio

    with Runner() as loop:
        served = [_load_served_team(team, making, how, loop) for team in teams]
        with SqliteCheckpointer(database.resolve_writable_path(place.db)) as saver:
            server = TeamServer(served, saver)
            if not http:
                # The SDK reads the standard input in a thread that cannot be interrupted. What was
                # done is stored, as it is when the process is killed.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                if sys.stdin.isatty():
                    output.print_remark("serving on the standard input; Ctrl-C ends it")
                loop.run(serve_stdio(server))
                return
            with socket.create_server((HOST, port)) as listening:
                url = f"http://{HOST}:{listening.getsockname()[1]}{MCP_PATH}"
                tools = [team.tool for team in served]
                output.print_outcome({"url": url, "tools": tools}, [url], as_json=how.json)
                if not token:
                    token = token_urlsafe(32)
                    output.print_remark(f"token: {token}")
                loop.run(serve_http(server, listening, token))


def _load_served_team(
    team: str, making: RunTeamOptions, how: OutputOptions, loop: Runner
) -> ServedTeam:
    from echelons.mcp.team_server import ServedTeam

    check_name(team)
    docs = resolve_folder(making.docs) if takes_documents(team) else None
    folder = resolve_folder(making.workspace)
    spec = TeamSpec(team, docs, making.model, trusted_folder=making.trust, workspace=folder)
    source = find_team_source(spec, output.choose_tracker(silent=how.json))
    agent = load_team(spec, source, loop)
    name = team if team in list_shipped_teams() else agent.name
    return ServedTeam(agent, name, spec.to_metadata(), load_team_profiles(spec), folder)


def _read_token(file: Path | None) -> str:
    """Return the token of a file or of the environment; empty if there is neither."""
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
    else:
        try:
            token = expand_home(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"--token-file cannot be read: {error}") from error
    if (token or file) and (len(token) < SHORTEST_TOKEN or not token.isascii()):
        raise typer.BadParameter(
            f"a token has {SHORTEST_TOKEN} characters or more, all of them ASCII"
        )
    return token
