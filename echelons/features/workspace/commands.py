"""`echelons changes`, `merge` and `discard`: what agents would change in a workspace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import database, output
from echelons.cli.command import (
    DatabaseOptions,
    ExitCode,
    OutputOptions,
    ThreadArgument,
    WorkspaceOption,
    command,
    text_argument,
)
from echelons.errors import no_workspace

if TYPE_CHECKING:
    from echelons.features.workspace.files import Workspace

AgentArgument = Annotated[
    str | None,
    text_argument("PATH", "The agent, such as [b]head/north[/b]; needed if several have changes."),
]
ShownAgentArgument = Annotated[
    str | None,
    text_argument(
        "PATH", "The agent, such as [b]head/north[/b]; by default all that have changes."
    ),
]
FilesOption = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="FILE", help="Only this file; may be given several times."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Forget them without asking first.")]


class _Changes(NamedTuple):
    """A thread whose agents may have changes, and those that have some."""

    thread: database.OpenThread
    workspace: Workspace
    agents: Sequence[str]

    def choose_agent(self, path: str | None) -> str:
        """Return the path of the named agent, else that of the only one with changes."""
        from echelons.checkpoints.threads.agent_states import resolve_agent

        if path is not None:
            return self.thread.run(resolve_agent(self.thread.id, path))
        if len(self.agents) == 1:
            return self.agents[0]
        names = ", ".join(self.agents) or "no agent"
        label = self.thread.label
        raise typer.BadParameter(f"name the agent: {names} of thread {label} has changes")


@contextmanager
def _open_changes(name: str, folder: Path | None, place: DatabaseOptions) -> Iterator[_Changes]:
    """Open a thread's changes in a folder, by default the one that is stored.

    Raises:
        WorkspaceError: Neither names one.
    """
    from echelons.features.workspace.feature import find_changing_agents, find_root
    from echelons.features.workspace.files import Workspace

    with database.open_database(place.db) as saver:
        thread = database.OpenThread(saver, database.find_root(saver, name))
        stored = thread.root.metadata.get("team_workspace") or find_root(saver.ledger, thread.id)
        path = expand_home(folder) if folder else stored
        if not path:
            raise no_workspace()
        agents = thread.run(find_changing_agents(thread.id))
        yield _Changes(thread, Workspace(str(path)), agents)


@command("changes office", "changes office head/writer --json")
def changes(
    thread: ThreadArgument,
    path: ShownAgentArgument = None,
    workspace: WorkspaceOption = None,
    *,
    place: DatabaseOptions,
    how: OutputOptions,
) -> None:
    """Show what the agents of a thread would change in the workspace, as a diff."""
    from echelons.features.workspace.feature import list_changes

    with _open_changes(thread, workspace, place) as opened:
        label, root = opened.thread.label, opened.workspace.root
        agent = None if path is None else opened.choose_agent(path)
        files = opened.thread.run(list_changes(opened.workspace, opened.thread.id, agent, ()))
    if how.json:
        listed = [file._asdict() for file in files]
        output.print_json({"thread": label, "workspace": root, "changes": listed})
        return
    for file in files:
        heir = f" (dismissed; left to {file.heir})" if file.heir else ""
        output.print_remark(f"{file.agent}{heir}: {file.path} {file.kind}")
        if file.conflict:
            output.print_remark(f"  conflict: {file.conflict}")
        for line in file.diff.removesuffix("\n").split("\n") if file.diff else ():
            output.print_result(line)
    if not files:
        output.print_remark(f"thread {label}: no changes")


@command("merge office head/writer", "merge office --json")
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
    from echelons.features.workspace.feature import merge_agent_changes

    with _open_changes(thread, workspace, place) as opened:
        label, root, agent = opened.thread.label, opened.workspace.root, opened.choose_agent(path)
        plan = merge_agent_changes(opened.workspace, opened.thread.id, agent, ())
        result = opened.thread.run(plan)
    output.print_outcome(
        {
            "thread": label,
            "workspace": root,
            "agent": agent,
            "merged": result.merged,
            "left": [{"path": file, "why": why} for file, why in result.left],
        },
        [
            *(f"merged {file}" for file in result.merged),
            *(f"left {file}: {why}" for file, why in result.left),
        ],
        f"{len(result.merged)} merged, {len(result.left)} left, in {root}",
        as_json=how.json,
    )
    return ExitCode.REFUSED if result.left else ExitCode.FINISHED


@command("discard office head/writer", "discard office --file docs/plan.md --yes")
def discard(  # noqa: PLR0913  its options
    thread: ThreadArgument,
    path: AgentArgument = None,
    files: FilesOption = None,
    workspace: WorkspaceOption = None,
    yes: YesOption = False,
    *,
    place: DatabaseOptions,
    how: OutputOptions,
) -> None:
    """Forget what an agent would change in the workspace. It cannot be restored."""
    from echelons.features.workspace.feature import discard_changes

    with _open_changes(thread, workspace, place) as opened:
        label, agent = opened.thread.label, opened.choose_agent(path)
        if not yes:
            what = ", ".join(files or ()) or "all changes"
            output.confirm(f"Forget {what} of {agent} on thread {label}?")
        plan = discard_changes(opened.workspace, opened.thread.id, agent, files or (), ())
        discarded = opened.thread.run(plan)
    output.print_outcome(
        {"thread": label, "agent": agent, "discarded": discarded},
        [f"discarded {file}" for file in discarded],
        f"{len(discarded)} discarded",
        as_json=how.json,
    )
