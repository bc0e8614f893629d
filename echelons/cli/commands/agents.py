"""`echelons trace`, `tree` and `usage`: what the agents of a thread did, do, and have used."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import database, output
from echelons.cli.command import (
    ExitCode,
    OutputOptions,
    PricesOption,
    ThreadOptions,
    check_value,
    command,
    text_argument,
)
from echelons.cli.output import escape_controls, format_count
from echelons.errors import ConfigurationError, LedgerDamaged

if TYPE_CHECKING:
    from rich.text import Text

    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.store import RootThread
    from echelons.checkpoints.threads.trace import Trace, TraceLink
    from echelons.guards.prices import Prices
    from echelons.identity.failures import LoggedFailure
    from echelons.tree.agent_registry import AgentRecord
    from echelons.tree.usage_report import GrantedAmount, UsageGroup, UsageReport, UsageTotals

VerifyOption = Annotated[
    bool,
    typer.Option("--verify", help="Check every link between a call and the thread it started."),
]
ErrorsOption = Annotated[
    bool,
    typer.Option("--errors", help="Show what failed: its agent or tool, its id and its traceback."),
]


@command("trace", "trace --thread trip --verify")
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
    from echelons.checkpoints.threads.trace import list_links

    with database.open_thread(place, quietly=how.json) as thread:
        whole = thread.store.trace(thread.id)
        failures = thread.store.failures(thread.id) if errors else ()
    links = list_links(whole) if verify else []
    value, lines = _trace_to_json(whole), [whole.text]
    if verify:
        keys = ("superior_thread_id", "sub_agent_thread_id", "agent", "state", "holds")
        value["links"] = [{key: getattr(link, key) for key in keys} for link in links]
        lines.append(f"\n{_format_links(links)}")
    if errors:
        value["failures"] = [asdict(failure) for failure in failures]
        lines.append(f"\n{_format_failures(failures)}")
    output.print_outcome(value, lines, as_json=how.json)
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
        "mail": [asdict(mail) for mail in trace.mail],
        "user_actions": [
            {"kind": str(action.kind), "at": action.at, **action.data}
            for action in trace.user_actions
        ],
        "subordinates": [_trace_to_json(subordinate) for subordinate in trace.subordinates],
    }


def _format_links(links: Sequence[TraceLink]) -> str:
    """Return the links as text, a line for each, then a summary."""
    lines = [
        f"{link.state:<11}  {link.superior_thread_id} -> {link.sub_agent_thread_id}  {link.agent}"
        for link in links
    ]
    broken = sum(not link.holds for link in links)
    total = format_count(len(links), "link")
    return "\n".join([*lines, f"{total}, {broken} broken" if broken else f"{total}, all hold"])


def _format_failures(failures: Sequence[LoggedFailure]) -> str:
    """Return failures as text, each with its traceback, then their number."""
    blocks: list[str] = []
    for failure in failures:
        where = f"{failure.path}, tool {failure.tool}" if failure.tool else failure.path
        ids = f"thread {failure.thread_id}, request {failure.request_id or 'none'}"
        head = f"failure {failure.id}  {where}\n{failure.at}  {ids}\n{failure.error}"
        blocks.append(f"{head}\n{indent(failure.traceback, '    ')}\n")
    return "\n".join([*blocks, format_count(len(failures), "failure")])


TopArgument = Annotated[
    str | None,
    text_argument(
        "AGENT",
        "The agent at the top, by its path, id or alias; by default the root.",
        check=check_value,
    ),
]
DepthOption = Annotated[
    int | None,
    typer.Option("--depth", metavar="LEVELS", min=0, help="Show so many levels below the top."),
]
FlatOption = Annotated[
    bool, typer.Option("--flat", help="Show a line for each agent, with its path.")
]
WatchOption = Annotated[
    bool, typer.Option("--watch", help="Show each change as it is stored, until Ctrl-C.")
]
STATE_STYLES = {
    "dismissed": "dim",
    "paused": "magenta",
    "waiting": "yellow",
    "working": "cyan",
    "failed": "bold red",
    "done": "green",
    "idle": "dim",
}
"""The style of each state on a terminal, as far as that has colours and `NO_COLOR` is not set."""
ENDED_STATES = ("done", "failed", "dismissed")
"""The states of agents that have nothing left to spend."""
POLL_INTERVAL = 0.2
"""Seconds between two looks at the database of `tree --watch`."""


@command("tree", "tree head/north --thread trip --depth 1", "tree --flat --json", "tree --watch")
def tree(
    agent: TopArgument = None,
    depth: DepthOption = None,
    flat: FlatOption = False,
    watch: WatchOption = False,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Show the agents that were called on a thread, and what each of them is doing.

    Without [b]--thread[/b], the latest thread is shown.
    """
    if watch and how.json:
        raise typer.BadParameter("--watch is for people, --json for programs")
    with database.open_thread(place, quietly=how.json) as thread:

        def draw() -> Text:
            from rich.text import Text

            registry, budgets = thread.store.registry(thread.id), dict[str, list[str]]()
            try:
                for grant in thread.store.grants(thread.id):
                    budgets.setdefault(grant.path, []).append(grant.describe_left())
            except LedgerDamaged as error:
                # Nothing is free then; the agents are shown nevertheless.
                output.print_remark(f"budgets are not shown: {error}")
            drawn: list[Text] = []
            if agent and not flat and registry.ancestors(agent):
                drawn.append(Text(escape_controls(registry.format_breadcrumbs(agent))))
            for line in registry.list_lines(agent, depth):
                record = line.agent
                if flat:
                    alias = f" ({record.alias})" if record.alias else ""
                    guide, name, rest = "", f"{record.path}{alias}", ""
                else:
                    guide, name, rest = line.guide, line.name, line.rest
                drawn.append(_draw_agent(guide, name, record, rest, budgets.get(record.path, ())))
            return Text("\n").join(drawn)

        if how.json:
            lines = thread.store.registry(thread.id).list_lines(agent, depth)
            grants = thread.store.grants(thread.id)
            agents = [_record_to_json(line.agent, grants) for line in lines]
            output.print_json({"thread": thread.label, "agents": agents})
        elif watch:
            return _watch(thread.saver, draw)
        else:
            output.print_drawing(draw(), soft_wrap=True)
    return ExitCode.FINISHED


def _watch(saver: SqliteCheckpointer, draw: Callable[[], Text]) -> ExitCode:
    """Show the agents, and show them anew whenever something is stored, until Ctrl-C."""
    from rich.live import Live

    version = None
    with Live(console=output.make_console(sys.stdout), auto_refresh=False) as live:
        try:
            while True:
                if (latest := saver.foreign_writes()) != version:
                    live.update(draw(), refresh=True)
                    version = latest
                time.sleep(POLL_INTERVAL)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED


def _draw_agent(
    guide: str, name: str, record: AgentRecord, rest: str, budget: Sequence[str]
) -> Text:
    """Return the line of an agent: what it is doing, its age, and what is left of its budgets."""
    from rich.text import Text

    from echelons.checkpoints.clock import utc_now
    from echelons.tree.agent_registry import describe_state

    age = ""
    if record.since:
        seconds = (utc_now() - datetime.fromisoformat(record.since)).total_seconds()
        age = f" [{output.format_duration(max(seconds, 0))}]"
    # The grant of a root is there until its next turn.
    if budget and record.state not in ENDED_STATES:
        age += f" ({escape_controls(', '.join(budget))})"
    return Text.assemble(
        (guide, "dim"),
        f"{escape_controls(name)}: ",
        (str(record.state), STATE_STYLES[record.state]),
        escape_controls(describe_state(record).removeprefix(record.state)),
        (f"{age}{rest}", "dim"),
    )


def _record_to_json(record: AgentRecord, grants: Sequence[GrantedAmount]) -> dict[str, Any]:
    listed = [grant.to_json() for grant in grants if grant.path == record.path]
    names = {"name": record.name, "level": record.level}
    value = {**names, **asdict(record), "state": str(record.state)}
    return {**value, "grants": listed} if listed else value


# As in `echelons.tree.usage_report`, which `--help` need not load.
GROUPS = ("agent", "thread", "tree", "day", "model")


def complete_group(incomplete: str) -> list[str]:
    """Return the groups that start with the text."""
    return [group for group in GROUPS if group.startswith(incomplete)]


def _check_group(group: str) -> str:
    if group not in GROUPS:
        raise typer.BadParameter(f"{escape_controls(group)!r} is none of {', '.join(GROUPS)}")
    return group


SubtreeArgument = Annotated[
    str | None,
    text_argument(
        "PATH",
        "The agent, such as [b]head/north[/b], with those below it; by default all agents.",
    ),
]
GroupOption = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="GROUP",
        help=f"A line for each [b]{'[/b], [b]'.join(GROUPS)}[/b]; a tree is a root's thread, "
        "and a day is one of UTC.",
        autocompletion=complete_group,
        callback=_check_group,
    ),
]
SubtreeOption = Annotated[
    bool, typer.Option("--subtree", help="Count each agent with all below it.")
]
BranchOption = Annotated[
    bool,
    typer.Option("--branch", help="Count only the present branch of a thread that was forked."),
]
AllOption = Annotated[bool, typer.Option("--all", "-a", help="Count the threads of the database.")]
COLUMNS = {
    "input_tokens": "INPUT",
    "output_tokens": "OUTPUT",
    "model_calls": "CALLS",
    "tool_calls": "TOOLS",
    "cached_tokens": "CACHED",
    "unknown_calls": "UNKNOWN",
    "estimated_calls": "ESTIMATED",
    "lost_calls": "LOST",
    "reserved_calls": "RUNNING",
    "charged_tokens": "CHARGED",
}
"""The columns of the table by field; those behind the fourth are left out where all is 0."""


@command(
    "usage",
    "usage head/north --subtree --prices prices.toml",
    "usage --by day --all --json",
    "usage --by tree",
)
def usage(  # noqa: PLR0913  its options
    path: SubtreeArgument = None,
    by: GroupOption = "agent",
    subtree: SubtreeOption = False,
    branch: BranchOption = False,
    every: AllOption = False,
    prices: PricesOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Show the tokens and calls that agents have used, and what they cost.

    Without [b]--thread[/b], the latest thread is counted; with [b]--all[/b] and
    [b]--by tree[/b], all threads.
    """
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.agent_states import resolve_agent
    from echelons.checkpoints.threads.store import ThreadStore
    from echelons.guards.prices import check_prices

    if subtree and by != "agent":
        raise typer.BadParameter(f"--subtree counts agents, --by {by} does not")
    if every and place.thread:
        raise typer.BadParameter("--all counts all threads, --thread one")
    table = check_prices(prices and expand_home(prices))
    whole = every or (by == "tree" and not place.thread)
    with database.open_database(place.db) as saver:
        labels = {root.id: database.root_label(root) for root in database.list_roots(saver)}
        root = None if whole else database.choose_shown_root(saver, place.thread, quietly=how.json)
        if root and not table:
            table = _load_stored_prices(root)
        if path is not None and root:
            path = run_plan(saver, resolve_agent(root.id, path))
        report = ThreadStore(saver).usage(root.id if root else None, branch=branch, prices=table)
    if path is not None:
        report = report.select(path)
    group = "subtree" if subtree else by
    groups, inherited = report.group(cast("UsageGroup", group)), report.inherited
    if by == "tree":
        names = sorted((labels.get(key, key), key) for key in groups)
        groups = {label: groups[key] for label, key in names}
    if how.json:
        output.print_json(
            {
                "thread": root and database.root_label(root),
                "currency": report.currency,
                "total": report.total.to_json(),
                "by": group,
                "groups": [{by: name, **sums.to_json()} for name, sums in groups.items()],
                "unpriced_models": report.unpriced_models,
                "grants": [grant.to_json() for grant in report.grants],
                **({"inherited": inherited.to_json()} if inherited.model_calls else {}),
            }
        )
    elif not groups:
        output.print_remark("nothing was used yet")
    else:
        _print_usage(report, groups, group)
    if not how.json and (calls := inherited.model_calls):
        tokens = output.format_number(inherited.tokens)
        output.print_remark(
            f"without what came with the copy: {calls} model calls, {tokens} tokens"
        )


def _load_stored_prices(root: RootThread) -> Prices | None:
    """Return the prices with which a thread was last run, if they still can be read."""
    from echelons.cli.team_loader import TeamSpec
    from echelons.guards.prices import check_prices

    team = TeamSpec.from_metadata(root.metadata)
    try:
        return check_prices(team and team.prices)
    except ConfigurationError as error:
        output.print_remark(f"without the prices that were stored with the thread: {error}")
        return None


def _print_usage(report: UsageReport, groups: Mapping[str, UsageTotals], group: str) -> None:
    from echelons.guards.budget import format_number
    from echelons.guards.prices import format_money

    total = report.total
    columns = [key for place, key in enumerate(COLUMNS) if place < 4 or getattr(total, key)]
    if group == "model":
        columns.remove("tool_calls")
    rows = {name or "?": sums for name, sums in groups.items()}
    # The subtree of the root is the whole; of one line, there is nothing to add up.
    if len(rows) > 1 and group != "subtree":
        rows["total"] = total
    money = [report.currency] if report.currency else []
    title = "AGENT" if group == "subtree" else group.upper()
    table = output.make_table(title, *(COLUMNS[key] for key in columns), *money)
    for name, sums in rows.items():
        cells = [f"{getattr(sums, key):,}" for key in columns]
        cost = ["-" if sums.cost is None else format_money(sums.cost)] if money else []
        style = "bold" if name == "total" else None
        table.add_row(escape_controls(name), *cells, *cost, style=style)
    output.print_drawing(table)
    if report.grants and group in ("agent", "subtree"):
        amounts = ("granted", "spent", "reserved", "free", "overdraft")
        table = output.make_table("GRANT", "UNIT", *map(str.upper, amounts))
        for grant in report.grants:
            cells = [format_number(getattr(grant, amount)) for amount in amounts]
            table.add_row(escape_controls(grant.path), grant.currency or grant.unit, *cells)
        output.print_result("")
        output.print_drawing(table)
    if total.unknown_calls:
        calls = f"{total.unknown_calls} of {total.model_calls} model calls"
        output.print_remark(f"{calls} report no tokens")
    if report.prices and total.unpriced_calls:
        models = ", ".join(report.unpriced_models)
        why = f" (the prices lack {models})" if models else ""
        output.print_remark(f"the cost is without {total.unpriced_calls} model calls{why}")
