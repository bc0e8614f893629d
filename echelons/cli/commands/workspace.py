"""`echelons changes`, `merge` and `discard`: what agents would change in a workspace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.display.text_format import check_name_argument
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import DatabaseOptions, OutputOptions, ThreadArgument, WorkspaceOption
from echelons.errors import no_workspace

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.workspace.files import Workspace

AgentArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="The agent, such as [b]head/north[/b]; needed if several have changes.",
        callback=check_name_argument,
    ),
]
ShownAgentArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="The agent, such as [b]head/north[/b]; by default all that have changes.",
        callback=check_name_argument,
    ),
]
FilesOption = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="FILE", help="Only this file; may be given several times."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Forget them without asking first.")]


class _ThreadChanges(NamedTuple):
    """Where the changes of a thread are, and the agents that have some."""

    saver: SqliteCheckpointer
    thread_id: str
    label: str
    workspace: Workspace
    agents: Sequence[str]


@command
def changes(
    thread: ThreadArgument,
    path: ShownAgentArgument = None,
    workspace: WorkspaceOption = None,
    *,
    place: DatabaseOptions,
    how: OutputOptions,
) -> ExitCode:
    """Show what the agents of a thread would change in the workspace, as a diff."""
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.tree_control.workspace_changes import list_changes

    with _open_changes(thread, workspace, place) as found:
        plan = list_changes(found.workspace, found.thread_id, path, ())
        shown = run_plan(found.saver, plan)
        root = found.workspace.root
    if how.json:
        files = [each._asdict() for each in shown]
        output.print_json({"thread": found.label, "workspace": root, "changes": files})
        return ExitCode.FINISHED
    for each in shown:
        heir = f" (dismissed; left to {each.heir})" if each.heir else ""
        output.print_remark(f"{each.agent}{heir}: {each.path} {each.kind}")
        if each.conflict:
            output.print_remark(f"  conflict: {each.conflict}")
        for line in each.diff.removesuffix("\n").split("\n") if each.diff else ():
            output.print_result(line)
    if not shown:
        output.print_remark(f"thread {found.label}: no changes")
    return ExitCode.FINISHED


@command
def merge(
    thread: ThreadArgument,
    path: AgentArgument = None,
    workspace: WorkspaceOption = None,
    *,
    place: DatabaseOptions,
    how: OutputOptions,
) -> ExitCode:
    """Put the changes of an agent into the workspace; files in conflict are left for review.

    Killed in the middle, it goes on when it is called again.
    """
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.tree_control.workspace_changes import merge_agent_changes

    with _open_changes(thread, workspace, place) as found:
        agent = _choose_agent(found, path)
        plan = merge_agent_changes(found.workspace, found.thread_id, agent, ())
        result = run_plan(found.saver, plan)
        root = found.workspace.root
    if how.json:
        left = [{"path": file, "why": why} for file, why in result.left]
        merged = {"agent": agent, "merged": result.merged, "left": left}
        output.print_json({"thread": found.label, "workspace": root, **merged})
    else:
        for file in result.merged:
            output.print_result(f"merged {file}")
        for file, why in result.left:
            output.print_result(f"left {file}: {why}")
        output.print_remark(f"{len(result.merged)} merged, {len(result.left)} left, in {root}")
    return ExitCode.REFUSED if result.left else ExitCode.FINISHED


@command
def discard(  # noqa: PLR0913  its options
    thread: ThreadArgument,
    path: AgentArgument = None,
    files: FilesOption = None,
    workspace: WorkspaceOption = None,
    yes: YesOption = False,
    *,
    place: DatabaseOptions,
    how: OutputOptions,
) -> ExitCode:
    """Forget what an agent would change in the workspace. It cannot be restored."""
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.tree_control.workspace_changes import discard_changes

    with _open_changes(thread, workspace, place) as found:
        agent = _choose_agent(found, path)
        if not yes:
            what = ", ".join(files or ()) or "all changes"
            output.confirm(f"Forget {what} of {agent} on thread {found.label}?")
        plan = discard_changes(found.workspace, found.thread_id, agent, files or (), ())
        gone = run_plan(found.saver, plan)
    if how.json:
        output.print_json({"thread": found.label, "agent": agent, "discarded": gone})
    else:
        for file in gone:
            output.print_result(f"discarded {file}")
        output.print_remark(f"{len(gone)} discarded")
    return ExitCode.FINISHED


@contextmanager
def _open_changes(
    thread: str, folder: Path | None, place: DatabaseOptions
) -> Iterator[_ThreadChanges]:
    """Open a thread's changes, with the folder that is given, else the one that is stored.

    Raises:
        WorkspaceError: Neither names one.
    """
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.tree_control.workspace_changes import find_changing_agents, find_root
    from echelons.workspace.files import Workspace

    with database.open_database(place.db) as saver:
        root = database.find_root(saver, thread)
        stored = root.metadata.get("team_workspace") or find_root(saver.ledger, root.id)
        named = expand_home(folder) if folder else stored
        if not named:
            raise no_workspace()
        agents = run_plan(saver, find_changing_agents(root.id))
        label = database.root_label(root)
        yield _ThreadChanges(saver, root.id, label, Workspace(str(named)), agents)


def _choose_agent(found: _ThreadChanges, path: str | None) -> str:
    if path is not None:
        return path
    if len(found.agents) == 1:
        return found.agents[0]
    have = ", ".join(found.agents) or "no agent"
    raise typer.BadParameter(f"name the agent: {have} of thread {found.label} has changes")
