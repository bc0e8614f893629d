"""Asking a model what agents can do: once for each, and what it says is data."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langgraph.errors import GraphInterrupt

from echelons import Agent
from echelons.capabilities import (
    DERIVED_CONFIDENCE,
    Capability,
    CapabilityMap,
    Deriver,
    ModelDeriver,
    TreeDeriver,
    derive_from_names,
)
from echelons.capabilities.capability_map import MAX_PROMPT_SHOWN, parse_capabilities
from echelons.checkpoints.coordination.capability_cache import CapabilityCache
from echelons.checkpoints.ledger import MemoryLedger
from echelons.routing import Router
from echelons.testing import OpenAIServer, Reply, ScriptedModel
from tests.error_codes import raises_code


def find_tables(place: str) -> str:
    """Find free tables."""
    return place


EAT = Agent("gusto", "A friend in town", prompt="You know every table.", tools=[find_tables])
FLY = Agent("icarus", prompt="You book planes.")


class Oracle:
    """A model that says of each agent what it was told to, and remembers its questions."""

    def __init__(self, **said: Any) -> None:
        self.model = ScriptedModel(self._answer)
        self._said = said
        self.told: list[dict[str, Any]] = []

    def _answer(self, messages: Sequence[BaseMessage]) -> Reply:
        about = json.loads(messages[-1].text)
        self.told.append(about)
        said = self._said.get(about["name"], "I do not know")
        return Reply(said if isinstance(said, str) else json.dumps({"capabilities": said}))

    @property
    def asked(self) -> list[str]:
        return sorted(each["name"] for each in self.told)


def can(name: str, *examples: str, confidence: Any = 0.7) -> list[dict[str, Any]]:
    return [{"name": name, "confidence": confidence, "examples": list(examples)}]


def team(*crowd: Agent) -> Agent:
    return Agent("head", subordinates=crowd, capabilities={"plans": 0.9})


def test_a_model_says_what_agents_can_do_that_declare_nothing() -> None:
    dinners = ["where shall we have dinner?", "a table for two"]
    oracle = Oracle(gusto=can("dining", *dinners), icarus=can("flights"))
    known = CapabilityMap.discover(team(EAT, FLY), ModelDeriver(oracle.model))

    assert oracle.asked == ["gusto", "icarus"], "the head declares what it can do"
    assert known.subordinates[0].capabilities.full == {"dining": Capability(0.7, dinners)}
    assert known.subordinates[0].derived
    found = Router(known).route("A table for dinner?")
    assert found.best is not None
    assert found.best.agent == "gusto"


async def test_waiting_for_the_model_derives_the_same() -> None:
    oracle = Oracle(gusto=can("dining"), icarus=can("flights"))
    known = await CapabilityMap.adiscover(team(EAT, FLY), ModelDeriver(oracle.model))

    assert known == CapabilityMap.discover(team(EAT, FLY), ModelDeriver(oracle.model))
    assert [*known.subordinates[1].capabilities] == ["flights"]
    assert await CapabilityMap.adiscover(FLY) == CapabilityMap.discover(FLY)


def test_model_gets_agent_and_tools_as_data() -> None:
    oracle = Oracle()
    CapabilityMap.discover(
        Agent("boss", prompt="x" * 100_000, subordinates=[EAT]), ModelDeriver(oracle.model)
    )

    boss, eat = sorted(oracle.told, key=lambda each: str(each["name"]))
    assert boss["subordinates"] == {"gusto": "A friend in town"}
    assert len(boss["prompt"]) == MAX_PROMPT_SHOWN
    assert (eat["prompt"], eat["tools"]) == (
        "You know every table.",
        {"find_tables": "Find free tables."},
    )


def test_a_deriver_asks_once_for_each_agent() -> None:
    oracle = Oracle(gusto=can("dining"))
    deriver = ModelDeriver(oracle.model)

    assert deriver(EAT) == deriver(EAT) == {"dining": Capability(0.7)}
    CapabilityMap.discover(team(EAT), deriver)
    assert oracle.asked == ["gusto"]


@pytest.mark.parametrize(
    "changed",
    [
        Agent("gusto", "A friend in town", prompt="You know no table.", tools=[find_tables]),
        Agent("gusto", "A friend", prompt="You know every table.", tools=[find_tables]),
        Agent("gusto", "A friend in town", prompt="You know every table."),
        Agent("gusto", prompt="x" * (MAX_PROMPT_SHOWN + 1)),
    ],
    ids=["prompt", "description", "tools", "long prompt"],
)
def test_a_changed_agent_is_asked_about_anew(changed: Agent) -> None:
    oracle = Oracle(gusto=can("dining"))
    deriver = ModelDeriver(oracle.model)
    for each in (EAT, changed, changed):
        deriver(each)

    assert oracle.asked == ["gusto"] * 2


def test_the_end_of_a_long_prompt_counts_too() -> None:
    oracle = Oracle(gusto=can("dining"))
    deriver = ModelDeriver(oracle.model)
    for end in "ab":
        deriver(Agent("gusto", prompt="x" * MAX_PROMPT_SHOWN + end))

    assert len(oracle.told) == 2


def test_what_is_kept_is_not_asked_again_by_the_next_one() -> None:
    oracle, ledger = Oracle(gusto=can("dining", "a table"), icarus=can("flights")), MemoryLedger()
    first = ModelDeriver(oracle.model).with_store(CapabilityCache(ledger, "head"))
    known = CapabilityMap.discover(team(EAT, FLY), first)
    idle = ScriptedModel([])

    again = CapabilityMap.discover(
        team(EAT, FLY), ModelDeriver(idle, CapabilityCache(ledger, "head"))
    )

    assert again == known
    assert idle.calls == []


async def test_another_model_and_another_tree_are_asked_for_themselves() -> None:
    oracle, ledger = Oracle(gusto=can("dining")), MemoryLedger()
    CapabilityMap.discover(EAT, ModelDeriver(oracle.model, CapabilityCache(ledger, "one")))
    await CapabilityMap.adiscover(EAT, ModelDeriver(oracle.model, CapabilityCache(ledger, "one")))
    assert len(oracle.told) == 1

    CapabilityMap.discover(EAT, ModelDeriver(oracle.model, CapabilityCache(ledger, "other")))
    assert len(oracle.told) == 2


GARBAGE = [
    "Dining, I think",
    "",
    "{",
    "{}",
    "[]",
    "null",
    '{"capabilities": []}',
    '{"capabilities": "dining"}',
    '{"capabilities": [{"name": "dining"}]}',
    '{"capabilities": [{"name": "dining", "confidence": "high"}]}',
    '{"capabilities": [{"name": "dining", "confidence": NaN}]}',
    '{"capabilities": [{"name": "dining", "confidence": 1.5}]}',
    '{"capabilities": [{"name": "dining", "confidence": true}]}',
    '{"capabilities": [{"name": " ", "confidence": 0.5}]}',
    '{"capabilities": [{"name": 3, "confidence": 0.5}]}',
    '{"capabilities": [{"name": "x", "confidence": 0.5, "examples": [""]}]}',
    '{"capabilities": [{"name": "x", "confidence": 0.5, "examples": "dinner"}]}',
    json.dumps({"capabilities": can("x" * 81)}),
    json.dumps({"capabilities": can("x", "y" * 301)}),
    json.dumps({"capabilities": can("x") * 21}),
    json.dumps({"capabilities": can("x", *"abcdefghijk")}),
    "x" * 10_000_000,
    "[" * 100_000,
]


@pytest.mark.parametrize("said", GARBAGE, ids=range(len(GARBAGE)))
def test_an_answer_that_is_none_has_a_name(said: str) -> None:
    with raises_code("deriver_failed", match="'gusto'") as failed:
        parse_capabilities("gusto", said)
    assert len(str(failed.value)) < 400


@pytest.mark.parametrize("said", ["Dining, I think", ConnectionError("no route\nto host")])
async def test_where_the_model_fails_words_say_what_an_agent_can_do(
    said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = MemoryLedger()
    broken = ModelDeriver(ScriptedModel([said]), CapabilityCache(ledger, "head"))
    known = CapabilityMap.discover(team(EAT), broken)

    assert known.subordinates[0].capabilities.full == derive_from_names(EAT)
    assert CapabilityMap.discover(team(EAT), broken) == known, "it is not asked again and again"
    assert await CapabilityMap.adiscover(team(EAT), ModelDeriver(ScriptedModel([said]))) == known
    assert [each.levelno for each in caplog.records] == [logging.WARNING] * 2
    assert "'gusto'" in caplog.text

    # Nothing of it is kept: the next process asks again.
    mended = ModelDeriver(Oracle(gusto=can("dining")).model, CapabilityCache(ledger, "head"))
    assert [*mended(EAT)] == ["dining"]


def test_one_bad_answer_takes_nothing_from_the_others() -> None:
    oracle = Oracle(gusto="no idea", icarus=can("flights"))
    known = CapabilityMap.discover(team(EAT, FLY), ModelDeriver(oracle.model))

    assert [[*each.capabilities] for each in known.subordinates] == [
        ["gusto", "find tables"],
        ["flights"],
    ]


async def test_an_interrupt_is_no_failure_of_the_model() -> None:
    for ask in (1, 2):
        deriver = ModelDeriver(ScriptedModel([GraphInterrupt()]))
        with pytest.raises(GraphInterrupt):
            if ask == 1:
                deriver.learn(EAT)
            else:
                await deriver.alearn(EAT)


def test_a_model_is_believed_no_more_than_words_are() -> None:
    said = json.dumps(
        {"capabilities": [*can("fine\x1b dining", confidence=1), *can("fine dining")]}
    )

    assert parse_capabilities("gusto", f"```json\n{said}\n```") == {
        "fine dining": Capability(DERIVED_CONFIDENCE)
    }


def test_a_model_may_be_given_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer([json.dumps({"capabilities": can("dining")})]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        assert [*ModelDeriver("openai:test-model")(EAT)] == ["dining"]
        assert len(server.requests) == 1


def test_a_name_that_is_no_model_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with raises_code("unknown_model"):
        ModelDeriver("gpt")
    with raises_code("unknown_model"):
        ModelDeriver(3)  # type: ignore[arg-type]
    with raises_code("model_key_missing"):
        ModelDeriver("openai:test-model")


def test_a_model_deriver_is_a_deriver_that_learns() -> None:
    deriver: Deriver = ModelDeriver(ScriptedModel([]))

    assert isinstance(deriver, TreeDeriver)
    assert not isinstance(derive_from_names, TreeDeriver)
