"""Agents are found by path, id and alias, and their tree is walked and drawn."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.errors import UnknownPath
from echelons.tree.agent_path import AgentPath
from echelons.tree.agent_registry import (
    STATE_COLOURS,
    AgentRecord,
    AgentRegistry,
    AgentState,
    RegistryDrawing,
    describe_state,
)

PATHS = ("head", "head/north", "head/north/camp", "head/north/lake", "head/south")


def build_registry(paths: tuple[str, ...] = PATHS, **aliases: str) -> AgentRegistry:
    """Return agents at some paths, each of which has a number as id."""
    ids = {path: f"id-{number}" for number, path in enumerate(paths)}
    return AgentRegistry(
        tuple(
            AgentRecord(
                id=ids[path],
                path=AgentPath(path),
                superior_id=ids.get(path.rpartition("/")[0], ""),
                alias=aliases.get(path.rpartition("/")[2], ""),
                subordinate_ids=tuple(
                    ids[each] for each in paths if each.rpartition("/")[0] == path
                ),
            )
            for path in paths
        )
    )


def list_names(agents: tuple[AgentRecord, ...]) -> list[str]:
    return [each.name for each in agents]


def test_an_agent_is_found_by_its_path_its_id_and_its_alias() -> None:
    registry = build_registry(camp="Ada")

    found = [registry.get(name) for name in ("head/north/camp", "id-2", "Ada")]

    assert [each.path for each in found] == ["head/north/camp"] * 3


def test_a_path_comes_before_an_id_and_an_id_before_an_alias() -> None:
    root, north, *_ = build_registry().agents
    registry = AgentRegistry(
        (
            replace(root, alias="id-9"),
            replace(north, id="head", path=AgentPath("head/north"), superior_id=""),
            replace(north, id="id-9", path=AgentPath("head/other"), superior_id=""),
        )
    )

    assert registry.get("head").path == "head"
    assert registry.get("id-9").path == "head/other"


@pytest.mark.parametrize("agent", ["nobody", "", "head/", "HEAD", 5, None, ["head"]])
def test_an_agent_that_there_is_not_is_an_error_with_the_paths(agent: Any) -> None:
    with pytest.raises(UnknownPath) as caught:
        build_registry().get(agent)

    assert caught.value.known == PATHS


def test_the_tree_is_walked_up_down_and_sideways() -> None:
    registry = build_registry()

    assert list_names(registry.subtree("head")) == ["head", "north", "camp", "lake", "south"]
    assert list_names(registry.subtree("head/north")) == ["north", "camp", "lake"]
    assert list_names(registry.subtree("head/south")) == ["south"]
    assert list_names(registry.ancestors("head/north/camp")) == ["head", "north"]
    assert registry.ancestors("head") == ()
    assert list_names(registry.siblings("head/north/camp")) == ["lake"]
    assert registry.siblings("head") == ()


@given(above=st.lists(st.integers(0, 30), max_size=30))
def test_every_tree_is_walked_as_its_paths_say(above: list[int]) -> None:
    paths = ["head"]
    for number, place in enumerate(above):
        paths.append(f"{paths[place % len(paths)]}/a{number}")
    paths.sort(key=lambda path: path.split("/"))  # each before those below it
    registry = build_registry(tuple(paths))

    for path in paths:
        below = [each for each in paths if f"{each}/".startswith(f"{path}/")]
        over = [each for each in paths if path.startswith(f"{each}/")]
        beside = [
            each
            for each in paths
            if each != path and each.rpartition("/")[0] == path.rpartition("/")[0]
        ]
        assert [each.path for each in registry.subtree(path)] == below
        assert [each.path for each in registry.ancestors(path)] == over
        assert [each.path for each in registry.siblings(path)] == beside
        drawn = registry.draw(path).splitlines()
        assert [line.split("── ")[-1] for line in drawn] == [
            f"{each.rpartition('/')[2]}: idle" for each in below
        ]


def test_breadcrumbs_lead_from_the_root_to_an_agent() -> None:
    registry = build_registry(camp="Ada")

    assert registry.format_breadcrumbs("Ada") == "head \u203a north \u203a camp (Ada)"
    assert registry.format_breadcrumbs("head") == "head"


def test_the_drawing_ends_at_a_depth_and_says_how_many_are_below() -> None:
    registry = build_registry(south="Mae")

    assert str(registry).splitlines() == [
        "head: idle",
        "├── north: idle",
        "│   ├── camp: idle",
        "│   └── lake: idle",
        "└── south (Mae): idle",
    ]
    assert registry.draw(depth=1).splitlines() == [
        "head: idle",
        "├── north: idle (and 2 below)",
        "└── south (Mae): idle",
    ]
    assert registry.draw(depth=0) == "head: idle (and 4 below)"
    assert registry.draw("head/north").splitlines() == [
        "north: idle",
        "├── camp: idle",
        "└── lake: idle",
    ]


def test_state_is_one_line_without_control_characters() -> None:
    [agent] = build_registry(("head",)).agents
    waiting = replace(
        agent, state=AgentState.WAITING, waiting_for=("anna", "head/x"), question="a\x1b[31mb"
    )

    assert describe_state(waiting) == "waiting for anna, head/x: a [31mb"


def test_the_mermaid_drawing_colours_each_state_and_interprets_no_question() -> None:
    head, north, *_ = build_registry(north="O'Hara").agents
    asking = replace(
        north, state=AgentState.WAITING, waiting_for=("the user",), question='"]; click x'
    )
    drawn = RegistryDrawing(AgentRegistry((head, asking)))

    lines = drawn.mermaid.splitlines()

    assert lines[0] == "flowchart TD"
    assert lines[1] == '    agent0["<b>head</b><br/>idle"]:::idle'
    assert re.fullmatch(r'    agent1\["<b>north \(O\'Hara\)</b><br/>[^"\]]+"\]:::waiting', lines[2])
    assert lines[3] == "    agent0 --> agent1"
    assert {line.split()[1] for line in lines[4:]} == {"idle", "waiting"}
    assert set(STATE_COLOURS) == set(AgentState)
    assert repr(drawn) == drawn.text
    assert drawn._repr_markdown_() == f"```mermaid\n{drawn.mermaid}\n```"
