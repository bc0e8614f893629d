"""`echelons threads` and `echelons show`: the threads, and the conversation of one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output
from echelons.cli.command import (
    OutputOptions,
    ThreadOptions,
    command,
    complete_thread,
    text_argument,
)
from echelons.cli.output import escape_controls, format_tool_call
from echelons.cli.question_text import format_questions
from echelons.delegation.mail import load_mail
from echelons.errors import ThreadNotFound
from echelons.text.content_blocks import describe_content
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from rich.table import Table

    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.thread_events import ThreadEvent
    from echelons.checkpoints.threads.trace import Trace

ShownArgument = Annotated[
    str | None,
    text_argument(
        "THREAD",
        "A root thread by name or id, or the thread of any agent by its id.",
        complete_thread,
    ),
]
AllOption = Annotated[bool, typer.Option("--all", "-a", help="Include the threads of all agents.")]


@command("threads", "threads --all")
def threads(every: AllOption = False, *, place: ThreadOptions, how: OutputOptions) -> None:
    """List the threads of the database, latest first."""
    with database.open_database(place.db) as saver:
        statuses = database.list_statuses(saver, place.thread)
        rows = [row for status in statuses for row in _list_rows(saver, status, every)]
    for status in statuses:
        database.print_damage(status.root)
    if how.json:
        for row in rows:
            output.print_json(row)
    elif rows:
        output.print_drawing(_build_table(rows))
    else:
        output.print_remark("no thread yet; `echelons run` begins one")


def _build_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    # On a terminal the ids stand below the names: both are copied, so neither may be folded.
    id_column = [] if sys.stdout.isatty() else ["ID"]
    table = output.make_table("THREAD", "AGENT", "STATE", "TURNS", "UPDATED", *id_column, left=6)
    table.columns[0].no_wrap = True
    table.columns[3].justify = "right"
    for row in rows:
        at = row["updated_at"]
        updated = f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M}" if at else ""
        cells = {**row, "turns": str(row["turns"]), "updated_at": updated}
        if not id_column:
            cells["thread"] = f"{row['thread']}\n{cells.pop('thread_id')}".strip()
        table.add_row(*map(escape_controls, cells.values()))
    return table


def _list_rows(
    saver: SqliteCheckpointer, status: database.RootStatus, every: bool
) -> Iterator[dict[str, Any]]:
    from echelons.checkpoints.threads.store import DAMAGE, ThreadStore

    root, state, below = status.root, str(status.state), list[dict[str, Any]]()
    if every and not root.damage:
        try:
            below = [*_list_subordinate_rows(ThreadStore(saver).trace(root.id), root.agent)]
        except DAMAGE as error:
            state = str(database.RootState.DAMAGED)
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
    for called in trace.subordinates:
        place = f"{path}{PATH_SEPARATOR}{called.agent}"
        yield {
            "thread": "",
            "agent": place,
            "state": called.status,
            "turns": len(called.requests),
            "updated_at": "",
            "thread_id": called.thread_id,
        }
        yield from _list_subordinate_rows(called, place)


@command("show trip", "show 8f1d0a52-6a5e-5c0b-9d55-…")
def show(shown: ShownArgument = None, *, place: ThreadOptions, how: OutputOptions) -> None:
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
        if shown is None:
            shown = database.choose_shown_root(saver, place.thread, quietly=how.json).id
        store = ThreadStore(saver)
        try:
            thread = store.get(shown)
        except ThreadNotFound:
            thread = store.get(database.find_root(saver, shown).id)
        questions = run_plan(saver, read_open_questions(thread.root_thread_id))
    if how.json:
        for event in thread.events:
            keys = {"key": event.key, "paired_with": event.paired_with, "data": event.data}
            output.print_json({"kind": str(event.kind), **keys})
        return
    output.print_result(f"{thread.path}  thread {thread.id}\n")
    output.print_result(_format_conversation(thread.agent, thread.events) or "not begun yet")
    # All questions of a tree hold up its root.
    waits_for = [q for q in questions if thread.id in (thread.root_thread_id, q.thread_id)]
    if waits_for:
        output.print_result(f"\n{format_questions(waits_for, place.db)}")


def _format_conversation(agent: str, events: Sequence[ThreadEvent]) -> str:
    """Return the events of an agent's thread as text, a paragraph for each message."""
    paragraphs: list[str] = []
    for event in events:
        if event.kind == "message":
            paragraphs.append(_format_message(agent, event.data))
        elif paragraphs:  # a call stands below the message that makes it
            paragraphs[-1] = f"{paragraphs[-1]}\n  {_format_call(event.data)}"
    return "\n\n".join(paragraphs)


def _format_message(agent: str, data: Mapping[str, Any]) -> str:
    title = {"human": "task", "ai": agent, "tool": "result"}.get(data["role"], data["role"])
    if "mail" in data:
        mail = load_mail(str(data["content"]), data["mail"])
        title, data = f"{mail.kind} from {mail.sender}", {**data, "content": mail.text}
    if data.get("status") == "error":
        title = f"{title} (error)"
    words = describe_content(data["content"])
    return f"{title}:\n  " + words.replace("\n", "\n  ") if words else f"{title}:"


def _format_call(data: Mapping[str, Any]) -> str:
    from echelons.delegation.request import render_facts

    arguments, thread = data["arguments"], data.get("sub_agent_thread_id")
    if thread is None:
        return f"calls {format_tool_call(data['intent'], arguments)}"
    words = str(arguments.get("message", "")).replace("\n", "\n    ")
    # Without a named subordinate, the request holds the one that routing chose.
    request = data.get("request") or {}
    receiver = request.get("current") or arguments.get("subordinate") or "an agent that can"
    lines = render_facts(request.get("context") or {}).splitlines()
    facts = "".join(f"\n    (with {line})" for line in lines)
    why = f"\n    (why: {request['why']})" if request.get("why") else ""
    return f"asks {receiver}, on thread {thread}:\n    {words}{facts}{why}"
