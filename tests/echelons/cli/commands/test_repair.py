"""`echelons repair` lists and hides messages, without a team and without a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from echelons import Agent, Session
from echelons.testing import Call, ScriptedModel

POISON = "what no provider takes"


def fetch() -> str:
    """Fetch a page."""
    return POISON


def read(messages: Any) -> Any:
    if POISON in str([each.content for each in messages]):
        raise ValueError("400 invalid request")
    return Call("fetch") if str(messages[-1].text) == "fetch" else "fine"


def test_a_thread_that_does_not_go_on_is_repaired(echelons: Callable[..., Result]) -> None:
    agent = Agent("head", model=ScriptedModel(read), tools=[fetch])
    database = Path("echelons.sqlite")
    with Session(agent, database, thread="rome") as session:
        with pytest.raises(ValueError, match="400"):
            session.send("fetch").result()

    listed = echelons("repair", "--db", str(database))
    assert listed.exit_code == 0
    assert f"fetch: {POISON}" in listed.stdout
    told = json.loads(echelons("repair", "--db", str(database), "--json").stdout)
    assert told["thread"] == "rome"
    [result] = [each for each in told["messages"] if each["kind"] == "tool"]
    assert (result["path"], result["hidden"], result["size"]) == ("head", False, len(POISON))
    assert result["why"] == ["no reply has come since"]

    hidden = echelons("repair", result["id"], "--db", str(database), "--by", "anna")
    assert hidden.exit_code == 0
    assert "hidden" in hidden.stdout
    with Session(agent, database, thread="rome") as session:
        assert session.resume().result().text == "fine"

    shown = json.loads(echelons("repair", "--undo", "--db", str(database), "--json").stdout)
    assert shown["messages"] == []
    assert echelons("repair", "none", "--db", str(database)).exit_code == 3
    with Session(agent, database, thread="rome") as session:
        run = session.send("hello")
        next(iter(run))
        assert echelons("repair", "--undo", "--db", str(database)).exit_code == 7
        run.close()


def test_thread_with_nothing_to_hide_says_so(echelons: Callable[..., Result]) -> None:
    database = Path("echelons.sqlite")
    with Session(Agent("head", model=ScriptedModel(["fine"])), database, thread="rome") as session:
        session.send("hello").result()

    listed = echelons("repair", "--db", str(database))
    assert (listed.exit_code, listed.stdout) == (0, "")
    assert "nothing that a provider may refuse in thread rome" in listed.stderr
    told = json.loads(echelons("repair", "--db", str(database), "--json").stdout)
    assert told == {"thread": "rome", "messages": []}


def test_unknown_threads_and_databases_are_named(echelons: Callable[..., Result]) -> None:
    assert echelons("repair", "--db", "none.sqlite").exit_code == 3
    with Session(Agent("head", model=ScriptedModel(["fine"])), "echelons.sqlite") as session:
        session.send("hello").result()

    other = echelons("repair", "--db", "echelons.sqlite", "--thread", "paris")
    assert other.exit_code == 3
    assert "paris" in other.stderr
