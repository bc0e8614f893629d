"""`echelons usage`: what the agents of a thread have used, and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.display.text_format import check_name_argument, escape_controls
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import OutputOptions, PricesOption, ThreadOptions
from echelons.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.table import Table

    from echelons.checkpoints.threads.store import RootThread
    from echelons.guards.prices import Prices
    from echelons.tree.usage_report import GrantedAmount, UsageGroup, UsageReport, UsageTotals

# As in `echelons.tree.usage_report`, which `--help` need not load.
GROUPS = ("agent", "thread", "tree", "day", "model")


def complete_group(incomplete: str) -> list[str]:
    """Return the groups that start with the text."""
    return [each for each in GROUPS if each.startswith(incomplete)]


def _check_group(given: str) -> str:
    if given not in GROUPS:
        raise typer.BadParameter(f"{escape_controls(given)!r} is none of {', '.join(GROUPS)}")
    return given


PathArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="The agent, such as [b]head/north[/b], with those below it; by default all agents.",
        callback=check_name_argument,
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


@command
def usage(  # noqa: PLR0913  its options
    path: PathArgument = None,
    by: GroupOption = "agent",
    subtree: SubtreeOption = False,
    branch: BranchOption = False,
    every: AllOption = False,
    prices: PricesOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Show the tokens and calls that agents have used, and what they cost.

    Without [b]--thread[/b], the latest thread is counted; with [b]--all[/b] and
    [b]--by tree[/b], all threads.
    """
    from echelons.checkpoints.threads.store import ThreadStore
    from echelons.guards.prices import check_prices

    if subtree and by != "agent":
        raise typer.BadParameter(f"--subtree counts agents, --by {by} does not")
    if every and place.thread:
        raise typer.BadParameter("--all counts all threads, --thread one")
    table = check_prices(prices and expand_home(prices))
    whole = every or (by == "tree" and not place.thread)
    with database.open_database(place.db) as saver:
        roots = {root.id: database.root_label(root) for root in database.list_roots(saver)}
        root = None if whole else database.choose_shown_root(saver, place.thread, quietly=how.json)
        if root and not table:
            table = _load_stored_prices(root)
        found = ThreadStore(saver).usage(root.id if root else None, branch=branch, prices=table)
    if path is not None:
        found = found.select(path)
    group = "subtree" if subtree else by
    groups = found.group(cast("UsageGroup", group))
    if by == "tree":
        named = sorted((roots.get(each, each), each) for each in groups)
        groups = {label: groups[each] for label, each in named}
    if how.json:
        listed = [{by: name, **sums.to_json()} for name, sums in groups.items()]
        output.print_json(
            {
                "thread": root and database.root_label(root),
                "currency": found.currency,
                "total": found.total.to_json(),
                "by": group,
                "groups": listed,
                "unpriced_models": found.unpriced_models,
                "grants": [each.to_json() for each in found.grants],
            }
        )
        return ExitCode.FINISHED
    if not groups:
        output.print_remark("nothing was used yet")
        return ExitCode.FINISHED
    _print_table(found, groups, group)
    if found.grants and by == "agent":
        output.print_result("")
        output.print_drawing(_build_grants_table(found.grants))
    for remark in _list_remarks(found):
        output.print_remark(remark)
    return ExitCode.FINISHED


def _load_stored_prices(root: RootThread) -> Prices | None:
    """Return the prices with which a thread was last run, if they still can be read."""
    from echelons.cli.team_loader import TeamSpec
    from echelons.guards.prices import check_prices

    name = TeamSpec.from_metadata(root.metadata)
    try:
        return check_prices(name and name.prices)
    except ConfigurationError as error:
        output.print_remark(f"without the prices that were stored with the thread: {error}")
        return None


def _list_columns(found: UsageReport, by: str) -> dict[str, str]:
    """Return the columns of the table, by the field that each shows."""
    columns = {
        "input_tokens": "INPUT",
        "output_tokens": "OUTPUT",
        "model_calls": "CALLS",
        **({} if by == "model" else {"tool_calls": "TOOLS"}),
    }
    rare = {
        "cached_tokens": "CACHED",
        "unknown_calls": "UNKNOWN",
        "estimated_calls": "ESTIMATED",
        "lost_calls": "LOST",
        "reserved_calls": "RUNNING",
        "charged_tokens": "CHARGED",
    }
    total = found.total
    columns |= {name: title for name, title in rare.items() if getattr(total, name)}
    return columns | ({"cost": found.currency} if found.currency else {})


def _print_table(found: UsageReport, groups: Mapping[str, UsageTotals], by: str) -> None:
    """Print a table, or a line for each group where it would not fit."""
    columns = _list_columns(found, by)
    rows = {name or "?": _format_sums(sums, columns) for name, sums in groups.items()}
    # The subtree of the root is the whole; of one line, there is nothing to add up.
    if len(rows) > 1 and by != "subtree":
        rows["total"] = _format_sums(found.total, columns)
    table = _build_table("AGENT" if by == "subtree" else by.upper(), columns.values(), rows)
    console = output.make_console(sys.stdout)
    wide = console.measure(table, options=console.options.update(width=output.UNLIMITED_WIDTH))
    if wide.maximum <= console.width:
        output.print_drawing(table)
        return
    for name, row in rows.items():
        facts = zip(columns.values(), row, strict=True)
        output.print_result(
            f"{name}: {', '.join(f'{title.lower()} {fact}' for title, fact in facts)}"
        )


def _format_sums(sums: UsageTotals, columns: Mapping[str, str]) -> list[str]:
    from echelons.guards.prices import format_money

    row = [f"{getattr(sums, name):,}" for name in columns if name != "cost"]
    if "cost" in columns:
        row.append("-" if sums.cost is None else format_money(sums.cost))
    return row


def _build_table(first: str, titles: Any, rows: Mapping[str, list[str]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for title in titles:
        table.add_column(title, justify="right")
    for name, row in rows.items():
        table.add_row(escape_controls(name), *row, style="bold" if name == "total" else None)
    return table


def _build_grants_table(grants: Sequence[GrantedAmount]) -> Table:
    from echelons.guards.budget import format_number

    columns = ("granted", "spent", "reserved", "free", "overdraft")
    table = _build_table("GRANT", ("UNIT", *map(str.upper, columns)), {})
    for each in grants:
        row = [format_number(getattr(each, name)) for name in columns]
        table.add_row(escape_controls(each.path), each.currency or each.unit, *row)
    return table


def _list_remarks(found: UsageReport) -> list[str]:
    total, remarks = found.total, list[str]()
    if total.unknown_calls:
        remarks.append(f"{total.unknown_calls} of {total.model_calls} model calls report no tokens")
    if found.prices and total.unpriced_calls:
        names = ", ".join(found.unpriced_models)
        why = f" (the prices lack {names})" if names else ""
        remarks.append(f"the cost is without {total.unpriced_calls} model calls{why}")
    return remarks
