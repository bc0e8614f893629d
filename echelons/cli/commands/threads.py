"""`echelons threads` and `echelons show`: the threads, and the conversation of one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output, unfinished_threads
from echelons.cli.command import command
from echelons.cli.display.question_text import format_questions
from echelons.cli.display.text_format import check_name_argument, escape_controls, format_tool_call
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import OutputOptions, ThreadOptions, complete_thread
from echelons.errors import ThreadNotFound
from echelons.messaging.mail import load_mail
from echelons.text.content_blocks import describe_content
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from rich.table import Table

    from echelons.checkpoints.thread_events import ThreadEvent
    from echelons.checkpoints.threads.store import ThreadStore
    from echelons.checkpoints.threads.trace import Trace

ShownArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="THREAD",
        help="A root thread by name or id, or the thread of any agent by its id.",
        autocompletion=complete_thread,
        callback=check_name_argument,
    ),
]
AllOption = Annotated[bool, typer.Option("--all", "-a", help="Include the threads of all agents.")]


@command
def threads(every: AllOption = False, *, place: ThreadOptions, how: OutputOptions) -> ExitCode:
    """List the threads of the database, latest first."""
    from echelons.checkpoints.threads.store import ThreadStore

    with database.open_database(place.db) as saver:
        found = unfinished_threads.list_root_statuses(saver, place.thread)
        rows = list(_list_rows(ThreadStore(saver), found, every))
    for each in found:
        database.print_damage(each.root)
    if how.json:
        for row in rows:
            output.print_json(row)
    elif rows:
        _print_rows(rows)
    else:
        output.print_remark("no thread yet; `echelons run` begins one")
    return ExitCode.FINISHED


def _list_rows(
    store: ThreadStore, found: Sequence[unfinished_threads.RootStatus], every: bool
) -> Iterator[dict[str, Any]]:
    from echelons.checkpoints.threads.store import DAMAGE

    for each in found:
        root, state, below = each.root, str(each.state), []
        if every and not root.damage:
            try:
                below = list(_list_subordinate_rows(store.trace(root.id), root.agent))
            except DAMAGE as error:
                state = str(unfinished_threads.RootState.DAMAGED)
                database.print_damage(replace(root, damage=str(error)))
        yield {
            "thread": database.root_label(root),
            "agent": root.agent,
            "state": state,
            "turns": root.turns,
            "updated_at": root.updated_at,
            "thread_id": root.id,
        }
        yield from below


def _list_subordinate_rows(trace: Trace, path: str) -> Iterator[dict[str, Any]]:
    for each in trace.subordinates:
        place = f"{path}{PATH_SEPARATOR}{each.agent}"
        yield {
            "thread": "",
            "agent": place,
            "state": each.status,
            "turns": len(each.requests),
            "updated_at": "",
            "thread_id": each.thread_id,
        }
        yield from _list_subordinate_rows(each, place)


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table, or two lines for each thread where its ids would not be whole."""
    console, table = output.make_console(sys.stdout), _build_table(rows)
    whole = console.measure(table, options=console.options.update(width=output.UNLIMITED_WIDTH))
    if whole.maximum <= console.width:
        output.print_drawing(table)
        return
    for row in rows:
        turns = f"{row['turns']} turn{'' if row['turns'] == 1 else 's'}"
        facts = [row["thread"] or row["agent"], row["state"], turns, _format_time(row)]
        output.print_result("  ".join(fact for fact in facts if fact))
        output.print_result(f"  {row['thread_id']}")


def _format_time(row: dict[str, Any]) -> str:
    at = row["updated_at"]
    return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M}" if at else ""


def _build_table(rows: Sequence[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("THREAD", "AGENT", "STATE", "TURNS", "UPDATED", "ID"):
        table.add_column(column, justify="right" if column == "TURNS" else "left")
    for row in rows:
        table.add_row(
            escape_controls(row["thread"]),
            escape_controls(row["agent"]),
            row["state"],
            str(row["turns"]),
            _format_time(row),
            row["thread_id"],
        )
    return table


@command
def show(shown: ShownArgument = None, *, place: ThreadOptions, how: OutputOptions) -> ExitCode:
    """Print the conversation of a thread, with the thread that each call started.

    The questions that it waits for come last.

    Without [b]THREAD[/b], the latest thread is shown.
    """
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.answer_outbox import read_open_questions
    from echelons.checkpoints.threads.store import ThreadStore

    if shown is not None and place.thread is not None:
        raise typer.BadParameter("give THREAD or --thread, not both")
    with database.open_database(place.db) as saver:
        wanted = shown or database.choose_shown_root(saver, place.thread, quietly=how.json).id
        store = ThreadStore(saver)
        try:
            found = store.get(wanted)
        except ThreadNotFound:
            found = store.get(database.find_root(saver, wanted).id)
        asked = run_plan(saver, read_open_questions(found.root_thread_id))
    if how.json:
        for event in found.events:
            output.print_json(
                {
                    "kind": str(event.kind),
                    "key": event.key,
                    "paired_with": event.paired_with,
                    "data": event.data,
                }
            )
    else:
        path = PATH_SEPARATOR.join(found.path)
        output.print_result(f"{path}  thread {found.id}\n")
        output.print_result(_format_conversation(found.agent, found.events) or "not begun yet")
        # All questions of a tree hold up its root.
        held_up = [each for each in asked if found.id in (found.root_thread_id, each.thread_id)]
        if held_up:
            output.print_result(f"\n{format_questions(held_up, place.db)}")
    return ExitCode.FINISHED


def _format_conversation(agent: str, events: Sequence[ThreadEvent]) -> str:
    """Return the events of an agent's thread as text, a paragraph for each message."""
    said: list[str] = []
    for event in events:
        if event.kind == "message":
            said.append(_format_message(agent, event.data))
        elif said:  # a call stands below the message that makes it
            said[-1] = f"{said[-1]}\n  {_format_call(event.data)}"
    return "\n\n".join(said)


def _format_message(agent: str, data: Mapping[str, Any]) -> str:
    who = {"human": "task", "ai": agent, "tool": "result"}.get(data["role"], data["role"])
    if "mail" in data:
        mail = load_mail(str(data["content"]), data["mail"])
        who, data = f"{mail.kind} from {mail.sender}", {**data, "content": mail.text}
    if data.get("status") == "error":
        who = f"{who} (error)"
    words = describe_content(data["content"])
    return f"{who}:\n  " + words.replace("\n", "\n  ") if words else f"{who}:"


def _format_call(data: Mapping[str, Any]) -> str:
    from echelons.delegation.request import render_facts

    arguments, thread = data["arguments"], data.get("sub_agent_thread_id")
    if thread is None:
        return f"calls {format_tool_call(data['intent'], arguments)}"
    words = str(arguments.get("message", "")).replace("\n", "\n    ")
    # Without a named subordinate, the request holds the one that routing found.
    sent = data.get("request") or {}
    whom = sent.get("current") or arguments.get("subordinate") or "an agent that can"
    lines = render_facts(sent.get("context") or {}).splitlines()
    facts = "".join(f"\n    (with {line})" for line in lines)
    why = f"\n    (why: {sent['why']})" if sent.get("why") else ""
    return f"asks {whom}, on thread {thread}:\n    {words}{facts}{why}"
