"""Agents with one superior share notes, and nobody else reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.ledger import build_key
from echelons.features.notes.feature import MAX_NOTE_BYTES, MAX_NOTES, LedgerNotes
from echelons.testing import Call, ScriptedModel, delegate
from echelons.workspace_tools import note_tools
from tests.error_codes import raises_code


def build_team(told: dict[str, list[str]], **calls: Sequence[Call]) -> Agent:
    """Return a head and two subordinates that make calls one after another."""

    def step(agent: str) -> Any:
        def think(messages: Any) -> Any:
            if messages[-1].type == "tool":
                told.setdefault(agent, []).append(str(messages[-1].text))
            done = len(told.get(agent, ()))
            return calls[agent][done] if done < len(calls.get(agent, ())) else "done"

        return think

    model = ScriptedModel({each: step(each) for each in ("head", "north", "east")})
    below = [Agent(each, tools=note_tools()) for each in ("north", "east")]
    return Agent("head", model=model, subordinates=below, tools=note_tools())


def write(name: str, text: str) -> Call:
    return Call("note_write", {"name": name, "text": text})


def read(name: str) -> Call:
    return Call("note_read", {"name": name})


def test_siblings_read_the_notes_of_each_other(tmp_path: Path) -> None:
    told: dict[str, list[str]] = {}
    team = build_team(
        told,
        head=[delegate("north", "go"), delegate("east", "go"), Call("note_list")],
        north=[Call("note_list"), write("hotels", "Roma"), write("hotels", "Bella")],
        east=[Call("note_list"), read("hotels"), write("food", "Da Mario"), read("none")],
    )
    with Session(team, tmp_path / "data.db") as session:
        assert session.send("go").result().finished

    assert told["north"][0] == "no notes"
    assert told["north"][1] == "wrote note 'hotels'"
    assert told["east"][0].startswith("hotels [head/north, ")
    assert told["east"][1].startswith("[head/north, ")
    assert told["east"][1].endswith("]\nBella")
    assert told["east"][3].startswith("Error: note 'none': there is none of that name")
    assert told["head"][-1] == "no notes"


def test_excess_is_refused_and_reported() -> None:
    told: dict[str, list[str]] = {}
    calls = [write("x", "y" * (MAX_NOTE_BYTES + 1)), write(" ", "y"), write("a\nb", "y")]
    with Session(build_team(told, head=calls), ":memory:") as session:
        assert session.send("go").result().finished

    assert [each[:12] for each in told["head"]] == ["Error: note "] * 3
    assert str(MAX_NOTE_BYTES) in told["head"][0]


def test_there_are_at_most_so_many_and_a_repeated_call_writes_once() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        notes, config = (
            LedgerNotes(saver),
            {
                "configurable": {"thread_id": "trip"},
                "metadata": {
                    **dict.fromkeys(("tree", "superior_thread_id", "request_id"), ""),
                    **dict.fromkeys(("thread_name", "turn_id"), ""),
                    "agent": "north",
                    "agent_path": "head/north",
                    "agent_thread_id": "x",
                },
            },
        )
        notes.write("0", "first", "call-1", config)
        notes.write("0", "second", "call-2", config)
        notes.write("0", "first", "call-1", config)
        assert [each.text for each in notes.list(config)] == ["second"]
        for number in range(1, MAX_NOTES):
            notes.write(str(number), "x", "", config)
        with raises_code("note_refused", match="which is the limit"):
            notes.write("more", "x", "", config)
        assert len(notes.list(config)) == MAX_NOTES

        saver.copy_thread("trip", "copy")
        saver.delete_thread("trip")
        assert notes.list(config) == []
        assert len(saver.ledger.list_keys(build_key("copy", "note"))) == MAX_NOTES


def test_a_tool_that_is_called_outside_of_a_run_is_refused() -> None:
    [_, _, listing] = note_tools()

    assert listing.invoke({}) == "Error: note of any name: only runs of a Session have notes"
