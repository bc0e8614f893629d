"""What a monitor's model reads is quoted, and of what it says only alerts and reports count."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from echelons.features.monitors.ledger import (
    MAX_ALERTS,
    MAX_REASON_LENGTH,
    PlacedMonitor,
    Verdict,
    WatchedEvent,
    build_segment_text,
    build_system_text,
    build_verdict_tools,
    read_verdict,
)
from echelons.monitors import Alert, Monitor

PLACED = PlacedMonitor(
    Monitor("watch", "Looks out for loops", prompt="Alert about loops."),
    "head/watch",
    "head",
    "head/scout",
    None,
)
KNOWN = {"head/scout", "head/scout/camp", "head/scout/camp2"}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def alert(path: Any, reason: Any = "It loops.") -> dict[str, Any]:
    return {"name": "alert", "args": {"path": path, "reason": reason}}


def test_monitor_reads_superior_and_watched_agent_before_its_prompt() -> None:
    text = build_system_text(PLACED)

    assert text.startswith("You are head/watch, a monitor")
    assert 'What you are for: "Looks out for loops"' in text
    assert "You watch head/scout and all agents below it, for head." in text
    assert text.endswith("\n\nAlert about loops.")
    assert "\\" not in text.replace('\\"', "")


def test_it_has_two_tools() -> None:
    tools = [each["function"] for each in build_verdict_tools()]

    assert [(each["name"], each["parameters"]["required"]) for each in tools] == [
        ("alert", ["path", "reason"]),
        ("report", ["text"]),
    ]


def test_an_alert_names_an_agent_by_its_path_or_by_a_name_that_one_has() -> None:
    calls = [alert("head/scout"), alert("camp2"), alert("scout")]

    found = read_verdict(calls, PLACED, KNOWN)

    assert found == Verdict(
        (
            Alert("head/watch", "head/scout", "It loops."),
            Alert("head/watch", "head/scout/camp2", "It loops."),
        )
    )


def test_what_is_outside_of_its_branch_is_a_fault_that_names_the_branch() -> None:
    [fault] = read_verdict([alert("head")], PLACED, KNOWN).faults

    assert fault == (
        'you watch no agent "head"; the agents below head/scout are head/scout, head/scout/camp, '
        "head/scout/camp2"
    )


def test_long_words_are_shortened_and_stand_on_one_line() -> None:
    call = {"name": "report", "args": {"text": "a\n" * 10_000}}

    [text] = read_verdict([call], PLACED, KNOWN).reports

    assert len(text) == MAX_REASON_LENGTH
    assert "\n" not in text


@given(st.lists(st.fixed_dictionaries({"name": st.text(), "args": ANYTHING})))
def test_no_reply_is_too_strange(calls: list[dict[str, Any]]) -> None:
    calls += [alert(each.get("name"), each.get("args")) for each in calls]

    found = read_verdict(calls, PLACED, KNOWN)

    assert len(found.alerts) <= MAX_ALERTS
    assert {each.path for each in found.alerts} <= KNOWN
    json.dumps(found.notes).encode()


@given(st.lists(st.builds(WatchedEvent, st.integers(), st.text(), st.text(), st.text())))
def test_each_event_is_one_line_of_json(events: list[WatchedEvent]) -> None:
    _, *lines = build_segment_text(events, []).split("\n")

    read = [json.loads(line) for line in lines]
    assert [each["says"] for each in read] == [each.text for each in events]
