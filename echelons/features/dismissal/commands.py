"""`echelons dismiss`: ends an agent and all below it, for good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from echelons.cli import database, output
from echelons.cli.command import (
    ByOption,
    OutputOptions,
    TeamOption,
    ThreadOptions,
    command,
    complete_agent,
    text_argument,
)
from echelons.errors import UnknownPath
from echelons.identity.lineage import choose_user_name

if TYPE_CHECKING:
    from echelons.checkpoints.threads.dismissal import DismissedSubtree

AgentArgument = Annotated[
    str,
    text_argument(
        "AGENT",
        "The agent, by its path, such as [b]head/north[/b], its id or its alias.",
        complete_agent,
    ),
]
GracefulOption = Annotated[
    bool, typer.Option("--graceful", help="Let those at work finish their request.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking first.")]


@command("dismiss head/experiences --thread trip", "dismiss head/flights --graceful --yes --json")
def dismiss(  # noqa: PLR0913  its options
    agent: AgentArgument,
    graceful: GracefulOption = False,
    yes: YesOption = False,
    team: TeamOption = None,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Dismiss an agent and all below it, for good, in any process.

    They begin nothing more, and nothing reaches them. What they have said
    and proposed stays. If the root is dismissed, the thread is closed.
    Without [b]--thread[/b], it is one of the latest thread.
    """
    from echelons.checkpoints.queries import OneCheckpoint
    from echelons.checkpoints.threads.agent_states import read_registry
    from echelons.checkpoints.threads.dismissal import dismiss_agent
    from echelons.checkpoints.threads.pending_work import is_finished
    from echelons.cli.team_loader import list_agent_paths
    from echelons.features.workspace.feature import add_changes
    from echelons.tree.agent_registry import AgentKind, AgentState

    command = ("dismiss", agent, *(["--graceful"] if graceful else []))
    with database.open_agent_thread(place, agent, command, quietly=how.json) as thread:
        kinds = dict[str, AgentKind]()
        try:
            subtree = thread.run(read_registry(thread.id, kinds)).subtree(agent)
        except UnknownPath:
            paths = list_agent_paths(thread, team, output.choose_tracker(silent=how.json))
            kinds = dict.fromkeys(sorted(paths), AgentKind.DECLARED)
            subtree = thread.run(read_registry(thread.id, kinds)).subtree(agent)
        if not yes and any(record.state is not AgentState.DISMISSED for record in subtree):
            below = f" and {len(subtree) - 1} below it" if len(subtree) > 1 else ""
            first = next(iter(subtree))
            output.confirm(f"Dismiss {first.path}{below} in thread {thread.label}, for good?")
        name = choose_user_name(by)
        ended = thread.run(dismiss_agent(thread.id, agent, kinds, name, graceful=graceful))
        ended = thread.run(add_changes(thread.id, ended))
        is_over = thread.run(is_finished(OneCheckpoint(thread.id)))
        running = thread.is_running()
    dismissal = ended.dismissal
    again = output.build_command_line("resume", "--thread", thread.label, db=place.db)
    output.print_outcome(
        {
            "dismissed": dismissal.path,
            "thread": thread.label,
            "new": ended.is_new,
            "graceful": dismissal.graceful,
            "by": dismissal.by,
            "at": dismissal.at,
            "agents": list(ended.agents),
            "outcome_unknown": [asdict(call) for call in ended.outcome_unknown],
            "questions": list(ended.questions),
            "changes": list(ended.changes),
            "heir": ended.heir,
            "running": running,
        },
        _format_dismissal(ended, thread.label),
        *([] if running or is_over else [f"it is not running now; go on with: {again}"]),
        as_json=how.json,
    )


def _format_dismissal(ended: DismissedSubtree, thread: str) -> Iterator[str]:
    dismissal = ended.dismissal
    how = " gracefully" if dismissal.graceful else ""
    if not ended.is_new:
        yield f"{dismissal.path} was dismissed{how} already, at {dismissal.at} by {dismissal.by}"
        return
    below = f" and {len(ended.agents) - 1} below it" if len(ended.agents) > 1 else ""
    yield f"dismissed {dismissal.path}{below}{how} in thread {thread}"
    for call in ended.outcome_unknown:
        yield f"outcome unknown: the call of {call.tool} by {call.path}, which was under way"
    for question in ended.questions:
        yield f"withdrawn: question {question}"
    for path in ended.changes:
        yield f"the changes of {path} stay, for {ended.heir} to merge"
