"""`echelons stop`, `pause`, `steer` and their like: to a turn, whichever process runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echelons.cli import database, output, unfinished_threads
from echelons.cli.command import command
from echelons.cli.display.dismissal_text import dismissal_to_json, format_dismissal
from echelons.cli.display.text_format import (
    build_command_line,
    check_name_argument,
    read_text_argument,
)
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import (
    ByOption,
    DatabaseOptions,
    OutputOptions,
    StoredTeamOptions,
    TeamOption,
    ThreadArgument,
    ThreadOptions,
    complete_agent,
)
from echelons.cli.stored_team import resolve_stored_team
from echelons.cli.team_loader import load_team
from echelons.errors import EchelonsError, ThreadNotFound, UnknownPath
from echelons.identity.lineage import choose_user_name, derive_root_thread_id

if TYPE_CHECKING:
    from echelons.checkpoints.threads.stop_and_pause import ControlOrder
    from echelons.checkpoints.threads.store import RootThread
    from echelons.messaging.mail import MailKind

PathArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="The agent, such as [b]head/north[/b], with all below it; by default the whole tree.",
        callback=check_name_argument,
    ),
]
ReceiverArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="The agent, such as [b]head/north[/b], at work or not.",
        callback=check_name_argument,
    ),
]
DismissedArgument = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="The agent, by its path, such as [b]head/north[/b], its id or its alias.",
        autocompletion=complete_agent,
        callback=check_name_argument,
    ),
]
GracefulOption = Annotated[
    bool, typer.Option("--graceful", help="Let those at work finish their request.")
]
TextArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEXT", help="What it is told; [b]-[/b] reads it from the standard input."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking first.")]

TAKEOVER_RISK = (
    "It can store nothing more, but what its tools do in the world goes on, and a tool call that "
    "it is in the middle of may still happen after you are asked about it. To end the process "
    "is safer, and frees the thread, too."
)


@command
def stop(
    path: PathArgument = None,
    team: TeamOption = None,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Stop an agent and all below it, or the whole turn, in any process."""
    return _give_order("stopped", path, team, by, place, how)


@command
def dismiss(  # noqa: PLR0913
    agent: DismissedArgument,
    graceful: GracefulOption = False,
    yes: YesOption = False,
    team: TeamOption = None,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Dismiss an agent and all below it, for good, in any process.

    They begin nothing more, and nothing reaches them. What they have said
    and proposed stays. If the root is dismissed, the thread is closed.
    Without [b]--thread[/b], it is one of the latest thread.
    """
    from echelons.checkpoints.ledger import build_key
    from echelons.checkpoints.queries import OneCheckpoint, run_plan
    from echelons.checkpoints.threads.agent_states import read_registry
    from echelons.checkpoints.threads.dismissal import dismiss_agent
    from echelons.checkpoints.threads.pending_work import is_finished
    from echelons.tree.agent_registry import AgentKind, AgentState

    with database.open_database(place.db) as saver:
        root = database.choose_shown_root(saver, place.thread, quietly=how.json)
        thread, known = database.root_label(root), dict[str, AgentKind]()
        try:
            subtree = run_plan(saver, read_registry(root.id, known)).subtree(agent)
        except UnknownPath:
            declared = _list_agent_paths(root, team, output.choose_tracker(silent=how.json))
            known = dict.fromkeys(sorted(declared), AgentKind.DECLARED)
            subtree = run_plan(saver, read_registry(root.id, known)).subtree(agent)
        living = [each for each in subtree if each.state is not AgentState.DISMISSED]
        if living and not yes:
            below = f" and {len(subtree) - 1} below it" if len(subtree) > 1 else ""
            first = next(iter(subtree))
            output.confirm(f"Dismiss {first.path}{below} in thread {thread}, for good?")
        name = choose_user_name(by)
        done = run_plan(saver, dismiss_agent(root.id, agent, known, name, graceful=graceful))
        is_over = run_plan(saver, is_finished(OneCheckpoint(root.id)))
        running = saver.ledger.get_holder(build_key(root.id)) is not None
    if how.json:
        output.print_json(dismissal_to_json(done, thread, running=running))
        return ExitCode.FINISHED
    for line in format_dismissal(done, thread):
        output.print_result(line)
    if not (running or is_over):
        again = build_command_line("resume", "--thread", thread, db=place.db)
        output.print_remark(f"it is not running now; go on with: {again}")
    return ExitCode.FINISHED


@command
def pause(
    path: PathArgument = None,
    team: TeamOption = None,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Pause an agent and all below it, or the whole tree, before the next model call."""
    return _give_order("paused", path, team, by, place, how)


@command
def message(
    path: ReceiverArgument,
    text: TextArgument,
    team: TeamOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Send an agent a message, which it reads before its next model call, in any process.

    Without [b]--thread[/b], it goes to the latest thread.
    """
    return _send_mail("message", path, text, team, place, how)


@command
def steer(
    path: ReceiverArgument,
    text: TextArgument,
    team: TeamOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Redirect an agent at work, in any process: its reply that is under way is cut off.

    Without [b]--thread[/b], it goes to the latest thread.
    """
    return _send_mail("intervention", path, text, team, place, how)


def _send_mail(
    kind: MailKind,
    path: str,
    text: str,
    team: str | None,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Send mail to an agent that has ever begun, or else to one that the team declares."""
    from echelons.checkpoints.ledger import build_key
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.mail_delivery import post_mail

    said = read_text_argument(text)
    with database.open_database(place.db) as saver:
        root = database.choose_shown_root(saver, place.thread, quietly=how.json)
        try:
            sent_to = run_plan(saver, post_mail(root.id, path, said, kind=kind))
        except UnknownPath:
            track = output.choose_tracker(silent=how.json)
            declared = _list_agent_paths(root, team, track, have_model=True)
            sent_to = run_plan(saver, post_mail(root.id, path, said, declared, kind))
        running = saver.ledger.get_holder(build_key(root.id)) is not None
    thread = database.root_label(root)
    if how.json:
        output.print_json({"sent_to": sent_to, "thread": thread, "running": running})
        return ExitCode.FINISHED
    article = "an" if kind == "intervention" else "a"
    output.print_result(f"sent {sent_to} {article} {kind} in thread {thread}")
    if not running:
        output.print_remark(f"it is not running now; the {kind} is read when it goes on")
    return ExitCode.FINISHED


@command
def takeover(
    thread: ThreadArgument, yes: YesOption = False, *, place: DatabaseOptions, how: OutputOptions
) -> ExitCode:
    """Take a thread from a process that hangs, so that it can be resumed.

    That process can store nothing more, but what its tools do in the world
    goes on, and a tool call that it is in the middle of may still happen
    after you are asked about it. To end the process is safer, and frees the
    thread, too.
    """
    from echelons.checkpoints.ledger import build_key
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.stop_and_pause import take_over_thread

    with database.open_database(place.db) as saver:
        try:
            root = database.find_root(saver, thread)
            root_id, label = root.id, database.root_label(root)
        except ThreadNotFound:
            # A process may hang before the first checkpoint of its first turn.
            root_id, label = derive_root_thread_id(thread), thread
        holder = saver.ledger.get_holder(build_key(root_id))
        if holder and not yes:
            where = f" on {holder.host}" if holder.host else ""
            held = f"Process {holder.pid}{where} has held thread {label} since {holder.since}."
            output.confirm(f"{held} {TAKEOVER_RISK} Take it over?")
        taken = run_plan(saver, take_over_thread(root_id, label, holder))
    if how.json:
        output.print_json({"taken_over": label, "thread_id": root_id, **taken._asdict()})
        return ExitCode.FINISHED
    output.print_result(f"took thread {label} over from process {taken.pid}")
    again = build_command_line("resume", "--thread", label, db=place.db)
    output.print_remark(f"go on with: {again}")
    return ExitCode.FINISHED


def _give_order(
    order: ControlOrder,
    path: str | None,
    team: str | None,
    by: str | None,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Give an order to an agent that has begun, or else to one that the team declares."""
    from echelons.checkpoints.ledger import build_key
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.stop_and_pause import give_order

    with database.open_database(place.db) as saver:
        root = unfinished_threads.find_unfinished_root(
            saver, place.thread, unfinished_threads.OPEN_STATES
        )
        name = choose_user_name(by)
        try:
            ordered = run_plan(saver, give_order(order, root.id, path, by=name))
        except UnknownPath:
            declared = _list_agent_paths(root, team, output.choose_tracker(silent=how.json))
            ordered = run_plan(saver, give_order(order, root.id, path, declared, name))
        running = saver.ledger.get_holder(build_key(root.id)) is not None
    thread = database.root_label(root)
    if how.json:
        output.print_json({order: ordered, "thread": thread, "running": running})
        return ExitCode.FINISHED
    output.print_result(f"{order} {ordered} in thread {thread}")
    if not running:
        again = build_command_line("resume", "--thread", thread, db=place.db)
        output.print_remark(f"it is not running now; go on with: {again}")
    return ExitCode.FINISHED


def _list_agent_paths(
    root: RootThread, team: str | None, track: output.Tracker | None, *, have_model: bool = False
) -> frozenset[str]:
    from echelons.agent import Agent
    from echelons.tree.members import walk_tree

    try:
        named = resolve_stored_team(root, StoredTeamOptions(team=team))
        agent = load_team(named, track=track, run=False)
    except EchelonsError:
        if team is not None:
            raise
        return frozenset()  # without --team, agents that have begun can still be named
    return frozenset(
        place.path_text
        for place in walk_tree(agent)
        if isinstance(place.member, Agent) or not have_model
    )
