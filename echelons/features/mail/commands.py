"""`echelons message` and `echelons steer`: mail to an agent, whichever process runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from echelons.cli import database, output
from echelons.cli.command import (
    OutputOptions,
    TeamOption,
    ThreadOptions,
    command,
    read_text,
    text_argument,
)
from echelons.errors import UnknownPath

if TYPE_CHECKING:
    from echelons.delegation.mail import MailKind

ReceiverArgument = Annotated[
    str, text_argument("PATH", "The agent, such as [b]head/north[/b], at work or not.")
]
TextArgument = Annotated[
    str,
    text_argument(
        "TEXT", "What it is told; [b]-[/b] reads it from the standard input.", check=None
    ),
]


@command('message head/flights "Only trains, please"', "message head - < note.txt")
def message(
    path: ReceiverArgument,
    text: TextArgument,
    team: TeamOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Send an agent a message, which it reads before its next model call, in any process.

    Without [b]--thread[/b], it goes to the latest thread.
    """
    _send_mail("message", path, text, team, place, how)


@command('steer head/flights "Look for trains instead"', "steer head - < note.txt")
def steer(
    path: ReceiverArgument,
    text: TextArgument,
    team: TeamOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Redirect an agent at work, in any process: its reply that is under way is cut off.

    Without [b]--thread[/b], it goes to the latest thread.
    """
    _send_mail("intervention", path, text, team, place, how)


def _send_mail(
    kind: MailKind,
    path: str,
    text: str,
    team: str | None,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Send mail to an agent that has ever begun, or else to one that the team declares."""
    from echelons.checkpoints.threads.agent_states import resolve_agent
    from echelons.checkpoints.threads.control import post_mail
    from echelons.cli.team_loader import list_agent_paths

    words = read_text(text)
    command = ("steer" if kind == "intervention" else "message", path, text)
    with database.open_agent_thread(place, path, command, quietly=how.json) as thread:
        path = thread.run(resolve_agent(thread.id, path))
        try:
            sent_to = thread.run(post_mail(thread.id, path, words, kind=kind))
        except UnknownPath:
            track = output.choose_tracker(silent=how.json)
            paths = list_agent_paths(thread, team, track, have_model=True)
            sent_to = thread.run(post_mail(thread.id, path, words, paths, kind))
        running = thread.is_running()
    article = "an" if kind == "intervention" else "a"
    output.print_outcome(
        {"sent_to": sent_to, "thread": thread.label, "running": running},
        [f"sent {sent_to} {article} {kind} in thread {thread.label}"],
        *([] if running else [f"it is not running now; the {kind} is read when it goes on"]),
        as_json=how.json,
    )
