"""`echelons usage`: what agents have used, for people and programs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Call = Callable[..., Result]
PRICES = 'currency = "EUR"\n\n[models.scripted]\ninput = 1.5\noutput = 2.5\n'


@pytest.fixture
def used(echelons: Call, folder: Path) -> Call:
    """The command line, after two threads of three replies each, one without its tokens."""
    (folder / "prices.toml").write_text(PRICES)
    for name in ("one", "two"):
        assert echelons("run", "trips:counted", "go", "--thread", name, "-q").exit_code == 0
    return echelons


def test_the_latest_thread_is_shown_by_agent(used: Call) -> None:
    shown = used("usage", "--prices", "prices.toml")

    assert shown.exit_code == 0
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["AGENT", "INPUT", "OUTPUT", "CALLS", "TOOLS", "UNKNOWN", "EUR"],
        ["head", "1,200", "30", "2", "0", "1", "0.001875"],
        ["head/leaf", "300", "4", "1", "0", "0", "0.00046"],
        ["total", "1,500", "34", "3", "0", "1", "0.002335"],
    ]
    assert "thread two, the latest of 2" in shown.stderr
    assert "1 of 3 model calls report no tokens" in shown.stderr
    assert "the cost is without 1 model calls" in shown.stderr


def test_subtrees_have_all_that_is_below(used: Call) -> None:
    _, head, leaf = used("usage", "--subtree", "--thread", "one").stdout.splitlines()
    assert head.split()[:3] == ["head", "1,500", "34"]
    assert leaf.split()[:3] == ["head/leaf", "300", "4"]
    _, leaf = used("usage", "head/leaf", "--thread", "one").stdout.splitlines()
    assert leaf.split() == ["head/leaf", "300", "4", "1", "0"]


@pytest.mark.parametrize(
    ("words", "first", "lines"),
    [
        (("--by", "tree"), ["one", "1,500", "34", "3", "0", "1"], 4),
        (("--by", "tree", "--thread", "two"), ["two", "1,500", "34", "3", "0", "1"], 2),
        (("--by", "model", "--all"), ["scripted", "3,000", "68", "6", "2"], 2),
        (("--all",), ["head", "2,400", "60", "4", "0", "2"], 4),
    ],
)
def test_usage_is_grouped(used: Call, words: tuple[str, ...], first: list[str], lines: int) -> None:
    shown = used("usage", *words).stdout.splitlines()

    assert (shown[1].split(), len(shown)) == (first, lines)


def test_programs_get_all_of_it_as_json(used: Call) -> None:
    told = json.loads(
        used("usage", "--subtree", "--json", "--prices", "prices.toml", "--thread", "one").stdout
    )

    assert (told["thread"], told["currency"], told["by"]) == ("one", "EUR", "subtree")
    assert told["total"]["tokens"] == 1534
    assert told["total"]["cost"] == "0.002335"
    assert [each["agent"] for each in told["groups"]] == ["head", "head/leaf"]
    assert told["groups"][1]["input_tokens"] == 300
    assert told["unpriced_models"] == []
    [day] = json.loads(used("usage", "--by", "day", "--json", "--all").stdout)["groups"]
    assert day["model_calls"] == 6
    threads = json.loads(used("usage", "--by", "thread", "--json").stdout)["groups"]
    assert len({each["thread"] for each in threads}) == 2


def test_the_prices_of_a_run_are_found_again(used: Call, folder: Path) -> None:
    run = used("run", "trips:counted", "go", "--thread", "three", "--prices", "prices.toml")
    assert run.exit_code == 0
    assert used("usage").stdout.splitlines()[-1].split()[-1] == "0.002335"

    (folder / "prices.toml").write_text(PRICES.replace("1.5", "-1"))

    shown = used("usage")
    assert shown.exit_code == 0
    assert "EUR" not in shown.stdout
    assert "without the prices that were stored with the thread" in shown.stderr
    assert "prices.toml, line 4: models.scripted.input: -1 is negative" in shown.stderr


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("head/nobody",), 3, "no agent 'head/nobody' in the tree; there are: head, head/leaf"),
        (("--thread", "four"), 3, "four"),
        (("--prices", "none.toml"), 3, "No such file"),
        (("--by", "mood"), 2, "'mood' is none of agent, thread, tree, day, model"),
        (("--subtree", "--by", "day"), 2, "--subtree counts agents"),
        (("--all", "--thread", "one"), 2, "--all counts all threads"),
        (("--db", "none.sqlite"), 3, "none.sqlite"),
    ],
)
def test_what_cannot_be_counted_is_refused(
    used: Call, words: tuple[str, ...], code: int, why: str
) -> None:
    refused = used("usage", *words)

    assert (refused.exit_code, refused.stdout) == (code, "")
    assert why in " ".join(refused.stderr.replace("│", " ").split())


def test_a_run_with_bad_prices_does_not_begin(used: Call) -> None:
    refused = used("run", "trips:counted", "go", "--thread", "five", "--prices", "none.toml")

    assert refused.exit_code == 3
    assert used("usage", "--thread", "five").exit_code == 3


def test_a_damaged_reply_is_named(used: Call) -> None:
    with sqlite3.connect("trips.sqlite") as connection:
        connection.execute("UPDATE events SET data = '{' WHERE id = (SELECT max(id) FROM events)")

    refused = used("usage")

    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "event " in refused.stderr


def test_no_thread_has_used_nothing(echelons: Call) -> None:
    assert echelons("run", "trips:offline", "go", "--thread", "t").exit_code == 0
    assert echelons("delete", "t", "--yes").exit_code == 0

    assert echelons("usage", "--all").stderr == "nothing was used yet\n"


def test_grants_are_shown_with_what_is_left(echelons: Call) -> None:
    assert echelons("run", "trips:budgeted", "go", "--thread", "t").exit_code == 4

    shown = [line.split() for line in echelons("usage").stdout.splitlines()]
    assert shown[-3:] == [
        ["GRANT", "UNIT", "GRANTED", "SPENT", "RESERVED", "FREE", "OVERDRAFT"],
        ["head", "tokens", "20,000", "1,000", "4,000", "15,000", "0"],
        ["head/clerk", "tokens", "4,000", "310", "0", "3,690", "0"],
    ]
    head, clerk = echelons("tree").stdout.splitlines()
    assert head.endswith("(15,000 of 20,000 tokens left)")
    assert clerk.endswith("(3,690 of 4,000 tokens left)")
    _, told = json.loads(echelons("tree", "--json").stdout)["agents"]
    assert [(each["unit"], each["free"]) for each in told["grants"]] == [("tokens", "3690")]

    assert echelons("answer", "yes", "-q").exit_code == 0
    assert "left" not in echelons("tree").stdout
    grants = json.loads(echelons("usage", "--json").stdout)["grants"]
    assert [(each["path"], each["spent"], each["closed"]) for each in grants] == [
        ("head", "2170", True),
        ("head/clerk", "620", True),
    ]


def test_a_damaged_grant_hides_no_agent(echelons: Call) -> None:
    assert echelons("run", "trips:budgeted", "go", "--thread", "t").exit_code == 4
    with sqlite3.connect("trips.sqlite") as connection:
        connection.execute("UPDATE ledger_values SET value = '{' WHERE key GLOB '*/grant/*/root'")

    shown = echelons("tree")

    assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 2)
    assert "budgets are not shown" in shown.stderr
    assert echelons("usage").exit_code == 3
