"""A monitor is declared with its superior, and what it cannot be is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echelons import Agent, DelegationPolicy, Session, Spawn
from echelons.errors import InvalidSetting
from echelons.features.monitors.settings import decide_alert
from echelons.guards.budget import Budget
from echelons.monitors import Alert, Monitor
from echelons.testing import ScriptedModel
from echelons.tree.members import fingerprint_tree
from tests.error_codes import raises_code

MODEL = ScriptedModel(["nothing"])


def test_its_defaults_are_those_of_the_page() -> None:
    monitor = Monitor("watch")

    assert (monitor.every_events, monitor.every_seconds) == (20, 5.0)
    assert monitor.budget.amounts == {"calls": 20}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("every_events", 0),
        ("every_events", True),
        ("every_seconds", 0),
        ("every_seconds", float("nan")),
        ("every_seconds", float("inf")),
        ("prompt", 7),
        ("watches", None),
        ("model", 7),
        ("model", ScriptedModel),
        ("model", "  "),
        ("budget", None),
        ("budget", Budget(seconds=1)),
        ("budget", Budget(calls=3, tool_calls=2)),
        ("tools", []),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Monitor("watch", **{field: value})

    assert (caught.value.owner, caught.value.setting) == ("Monitor", field)


@pytest.mark.parametrize("name", ["", "two words", "reason", 7])
def test_its_name_is_that_of_an_agent(name: Any) -> None:
    with raises_code("invalid_name"):
        Monitor(name)


def test_its_name_is_unique_in_the_tree() -> None:
    scout = Agent("scout", monitors=[Monitor("watch")])

    with raises_code("duplicate_name", match="head/watch"):
        Agent("head", subordinates=[scout], monitors=[Monitor("watch")])
    with raises_code("duplicate_name"):
        Agent("head", subordinates=[scout, Agent("watch")])
    with raises_code("duplicate_name"):
        Agent("head", monitors=[Monitor("head")])


def test_it_watches_an_agent_below_its_superior() -> None:
    scout = Agent("scout")
    for watches in ("", "scout", "head/scout", "head"):
        Agent("head", subordinates=[scout], monitors=[Monitor("watch", watches=watches)])

    with raises_code("invalid_field", match="watches"):
        Agent("head", subordinates=[scout], monitors=[Monitor("watch", watches="elsewhere")])


@pytest.mark.parametrize("given", ["watch", 7, [Agent("watch")], {"watch": 1}])
def test_what_is_no_list_of_monitors_is_refused(given: Any) -> None:
    with raises_code("invalid_field", match="monitors"):
        Agent("head", monitors=given)


def test_it_is_no_subordinate() -> None:
    with raises_code("invalid_subordinate", match="monitors="):
        Agent("head", subordinates=[Monitor("watch")])


def test_it_needs_a_model_that_can_judge() -> None:
    with raises_code("invalid_field", match="model"):
        Agent("head", monitors=[Monitor("watch")]).compile()
    with raises_code("invalid_field", match="model"):
        Agent("head", model=lambda _: MODEL, monitors=[Monitor("watch")]).compile()

    Agent("head", monitors=[Monitor("watch", model=MODEL)]).compile()
    inner = Agent("north", monitors=[Monitor("watch")])
    Agent("head", model=MODEL, subordinates=[inner]).compile()


def test_its_model_calls_tools() -> None:
    from langchain_core.language_models import FakeListChatModel

    watch = Monitor("watch", model=FakeListChatModel(responses=["nothing"]))
    with raises_code("model_cannot_call"):
        Agent("head", monitors=[watch]).compile()


def test_a_thread_goes_on_with_a_tree_that_has_another_monitor() -> None:
    before, after = Agent("head"), Agent("head", monitors=[Monitor("watch", model=MODEL)])

    assert fingerprint_tree(before) == fingerprint_tree(after)


def test_no_monitor_is_spawned() -> None:
    with pytest.raises(InvalidSetting, match="kinds"):
        Spawn(kinds=("monitor",))  # type: ignore[arg-type]
    profile = Agent("scout", monitors=[Monitor("watch", model=MODEL)])
    with raises_code("invalid_option", match="monitors"):
        Session(Agent("head"), ":memory:", spawnable={"scout": profile})


def test_a_drawing_shows_it_beside_the_subordinates() -> None:
    watch = Monitor("watch", "Looks out for loops", watches="scout")
    head = Agent("head", subordinates=[Agent("scout")], monitors=[watch])

    assert head.draw().text.splitlines()[1:] == [
        "├── scout",
        "└── watch: Looks out for loops (monitor of scout)",
    ]
    assert "agent0monitor0 -. watches .-> agent1" in head.draw().mermaid


def test_a_folder_has_monitors_as_tables(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("You plan.")
    (tmp_path / "settings.toml").write_text(
        'name = "head"\n'
        "[[monitors]]\n"
        'name = "watch"\n'
        'prompt = "Alert about loops."\n'
        'model = "openai:gpt-5-mini"\n'
        "every_events = 5\n"
        "budget = {calls = 7}\n"
        "[[monitors]]\n"
        'name = "second"\n'
        "[delegation]\n"
        'on_alert = "stop"\n'
    )
    head = Agent.from_folder(tmp_path)

    first, second = head.monitors
    assert (first.name, first.every_events, first.budget.calls) == ("watch", 5, 7)
    assert (second.name, second.budget.calls) == ("second", 20)
    assert head.delegation is not None
    assert head.delegation.on_alert == "stop"


def test_a_wrong_monitor_of_a_folder_is_shown_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("You plan.")
    (tmp_path / "settings.toml").write_text(
        'name = "head"\n[[monitors]]\nname = "watch"\nevery_events = -1\n'
    )
    with raises_code("invalid_profile", match="every_events"):
        Agent.from_folder(tmp_path)
    (tmp_path / "settings.toml").write_text('name = "head"\n[[monitors]]\nprompt = "?"\n')
    with raises_code("invalid_profile", match="name"):
        Agent.from_folder(tmp_path)


@pytest.mark.parametrize("rule", ["shout", None, 7])
def test_a_rule_for_alerts_is_a_decision_or_a_function(rule: Any) -> None:
    with pytest.raises(InvalidSetting, match="on_alert"):
        DelegationPolicy(on_alert=rule)


def test_a_function_decides_by_the_alert() -> None:
    alert = Alert("head/watch", "head/scout", "It repeats itself.")

    assert (
        decide_alert(lambda each: "stop" if each.path == "head/scout" else "tell", alert) == "stop"
    )
    with pytest.raises(ValueError, match="perhaps"):
        decide_alert(lambda _: "perhaps", alert)  # type: ignore[arg-type, return-value]
