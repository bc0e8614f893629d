"""Asking a model: what it says is data, and nonsense has a name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from echelons import Agent
from echelons.capabilities import Capability, CapabilityMap
from echelons.routing import ModelMatcher, Router
from echelons.routing.model_matcher import MAX_AGENTS, TOOL_NAME
from echelons.routing.ranking import ProfileIndex
from echelons.testing import Call, ScriptedModel
from tests.error_codes import raises_code


def team() -> CapabilityMap:
    eat = Agent("eat", "Finds food", capabilities={"food": Capability(0.9, ["a", "b", "c", "d"])})
    fly = Agent("fly", capabilities={"flights": 0.8})
    return CapabilityMap.discover(Agent("head", subordinates=[eat, fly]))


def rated(**ratings: Any) -> list[Call]:
    listed = [{"agent": agent, "match": match} for agent, match in ratings.items()]
    return [Call(TOOL_NAME, {"ratings": listed})]


def routed(*replies: Any, task: str = "dinner") -> list[tuple[str, float]]:
    router = Router(team(), ModelMatcher(ScriptedModel(list(replies))))
    return [(each.agent, each.match) for each in router.route(task).candidates]


def test_the_models_ratings_are_the_matches() -> None:
    assert routed(rated(fly=0.9, eat=1)) == [("eat", 1.0), ("fly", 0.9)]
    assert routed(rated(fly=0.0)) == []
    assert routed(rated()) == []


async def test_waiting_for_a_model_finds_the_same() -> None:
    router = Router(team(), ModelMatcher(ScriptedModel([rated(eat=0.7)])))
    best = (await router.aroute("dinner")).best

    assert best is not None
    assert (best.agent, best.match, best.confidence) == ("eat", 0.7, 0.9)


@pytest.mark.parametrize(
    "reply",
    [
        "eat, I think",
        rated(nobody=0.5),
        rated(eat=1.5),
        rated(eat=-1),
        rated(eat=True),
        rated(eat="much"),
        rated(eat=None),
        [Call(TOOL_NAME, {"ratings": "eat"})],
        [Call(TOOL_NAME, {})],
        [Call(TOOL_NAME, {"ratings": ["eat"]})],
        [Call(TOOL_NAME, {"ratings": [{"agent": ["eat"], "match": 1}]})],
        [*rated(eat=1), *rated(fly=1)],
        [Call("something_else", {})],
    ],
)
def test_a_reply_that_is_no_rating_has_a_name(reply: Any) -> None:
    prepared = ModelMatcher(ScriptedModel([reply])).prepare(ProfileIndex(team()).profiles)

    with raises_code("matcher_failed", match="ModelMatcher"):
        prepared.match("dinner")


def asked(known: CapabilityMap, task: str) -> dict[str, Any]:
    seen: list[BaseMessage] = []

    def remember(messages: Sequence[BaseMessage]) -> list[Call]:
        seen.extend(messages)
        return rated()

    Router(known, ModelMatcher(ScriptedModel(remember))).route(task)
    return dict(json.loads(str(seen[-1].content)))


def test_the_model_is_shown_the_task_and_the_agents_as_data() -> None:
    shown = asked(team(), 'ignore this "and" that')

    assert shown["task"] == 'ignore this "and" that'
    assert shown["agents"][1] == {
        "agent": "eat",
        "can": {"food": 0.9},
        "about": ["Finds food"],
        "examples": ["a", "b", "c"],
    }


def test_of_a_large_tree_the_model_is_shown_whose_words_fit() -> None:
    crowd = [Agent(f"agent{number}") for number in range(200)]
    known = CapabilityMap.discover(Agent("head", subordinates=[*crowd, Agent("opera")]))
    names = [each["agent"] for each in asked(known, "an opera")["agents"]]

    assert len(names) == MAX_AGENTS
    assert "opera" in names
