"""`echelons trace`: all threads of a root as a tree, and a check of their links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import OutputOptions, ThreadOptions

if TYPE_CHECKING:
    from echelons.checkpoints.threads.trace import Trace, TraceLink
    from echelons.identity.failures import LoggedFailure

VerifyOption = Annotated[
    bool,
    typer.Option("--verify", help="Check every link between a call and the thread it started."),
]
ErrorsOption = Annotated[
    bool,
    typer.Option("--errors", help="Show what failed: its agent or tool, its id and its traceback."),
]


@command
def trace(
    verify: VerifyOption = False,
    errors: ErrorsOption = False,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Print the delegations of a thread as a tree, with each agent's thread, status and tools.

    Without [b]--thread[/b], the latest thread is shown. [b]--errors[/b] adds its latest failures,
    at most 100, oldest first.
    """
    from echelons.checkpoints.threads.store import ThreadStore
    from echelons.checkpoints.threads.trace import list_links

    with database.open_database(place.db) as saver:
        root = database.choose_shown_root(saver, place.thread, quietly=how.json)
        store = ThreadStore(saver)
        found = store.trace(root.id)
        failures = store.failures(root.id) if errors else ()
    links = list_links(found) if verify else []
    if how.json:
        keys = ("superior_thread_id", "sub_agent_thread_id", "agent", "state", "holds")
        listed = [{key: getattr(link, key) for key in keys} for link in links]
        shown = {"links": listed} if verify else {}
        if errors:
            shown["failures"] = [asdict(each) for each in failures]
        output.print_json({**_trace_to_json(found), **shown})
    else:
        output.print_result(found.text)
        if verify:
            output.print_result(f"\n{_format_links(links)}")
        if errors:
            output.print_result(f"\n{_format_failures(failures)}")
    return ExitCode.FINISHED if all(link.holds for link in links) else ExitCode.BROKEN


def _trace_to_json(trace: Trace) -> dict[str, Any]:
    return {
        "thread_id": trace.thread_id,
        "agent": trace.agent,
        "alias": trace.alias,
        "status": trace.status,
        "link": str(trace.state),
        "requests": [
            {
                "call_id": request.call_id,
                "status": str(request.status) if request.status else "open",
                "reason": request.reason,
                "hops": request.sent.hops,
                "response": request.response and request.response.model_dump(mode="json"),
                **request.sent.model_dump(mode="json"),
            }
            for request in trace.requests
        ],
        "tools": list(trace.tools),
        "progress": list(trace.progress),
        "mail": [asdict(each) for each in trace.mail],
        "user_actions": [
            {"kind": str(each.kind), "at": each.at, **each.data} for each in trace.user_actions
        ],
        "subordinates": [_trace_to_json(each) for each in trace.subordinates],
    }


def _format_links(links: list[TraceLink]) -> str:
    """Return the links as text, a line for each, then a summary."""
    lines = [
        f"{link.state:<11}  {link.superior_thread_id} -> {link.sub_agent_thread_id}  {link.agent}"
        for link in links
    ]
    broken = sum(not link.holds for link in links)
    total = f"{len(links)} link{'' if len(links) == 1 else 's'}"
    return "\n".join([*lines, f"{total}, {broken} broken" if broken else f"{total}, all hold"])


def _format_failures(failures: Sequence[LoggedFailure]) -> str:
    """Return failures as text, each with its traceback, then their number."""
    blocks: list[str] = []
    for each in failures:
        where = f"{each.path}, tool {each.tool}" if each.tool else each.path
        ids = f"thread {each.thread_id}, request {each.request_id or 'none'}"
        lines = (f"failure {each.id}  {where}", f"{each.at}  {ids}", each.error)
        blocks.append("\n".join((*lines, indent(each.traceback, "    "), "")))
    total = f"{len(failures)} failure{'' if len(failures) == 1 else 's'}"
    return "\n".join([*blocks, total])
