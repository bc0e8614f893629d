"""What crosses between a superior and its subordinate, and that nothing else does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage

from echelons import Agent, DelegationPolicy, Session
from echelons.delegation.context import ContextPolicy, DelegationContext
from echelons.errors import InvalidSetting
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.error_codes import raises_code

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def follow(steps: Any) -> Any:
    left = iter(steps)
    return lambda messages: next(left)


def look(subject: str) -> str:
    """Look something up."""
    return f"MID-TOOL {subject}"


TASK = {"subordinate": "leaf", "message": "MID-TASK add", "context": {"fact": "MID-FACT"}}


def team(policy: DelegationPolicy | None = None) -> tuple[Agent, ScriptedModel]:
    """Return a tree of three levels in which each message has a mark of its own."""
    model = ScriptedModel(
        {
            "head": follow([delegate("mid", "HEAD-TASK go"), "HEAD-END"]),
            "mid": follow(
                [
                    Reply("MID-WORDS", [Call("look", {"subject": "MID-SUBJECT"})]),
                    Call("call_subordinate", TASK),
                    "MID-END",
                ]
            ),
            "leaf": follow(["LEAF-END"]),
        }
    )
    below = [Agent("leaf")]
    mid = Agent("mid", prompt="MID-PROMPT", tools=[look], subordinates=below, delegation=policy)
    return Agent("head", prompt="HEAD-PROMPT", model=model, subordinates=[mid]), model


def marks(model: ScriptedModel, agent: str) -> set[str]:
    """Return the marks in all that an agent's model was ever sent; artifacts are for Python."""
    messages: list[BaseMessage] = [
        message for call in model.calls if call.agent == agent for message in call.messages
    ]
    sent = [message.model_dump(exclude={"artifact"}) for message in messages]
    return set(re.findall(r"[A-Z]+-[A-Z]+", str(sent)))


def test_without_a_policy_nothing_crosses_but_task_facts_and_answer(world: World) -> None:
    agent, model = team()
    with Session(agent, ":memory:") as session:
        world.send(session, "USER-TASK")
    assert marks(model, "leaf") == {"MID-TASK", "MID-FACT"}
    assert marks(model, "mid") == {
        *("HEAD-TASK", "MID-PROMPT", "MID-WORDS", "MID-SUBJECT", "MID-TOOL", "MID-TASK"),
        *("MID-FACT", "LEAF-END"),
    }
    assert marks(model, "head") == {"USER-TASK", "HEAD-PROMPT", "HEAD-TASK", "MID-END"}


def test_policy_shows_recent_events_and_no_level_further_up(world: World) -> None:
    policy = ContextPolicy(safety_flags=("SAFE-FLAG",), preview=True)
    agent, model = team(DelegationPolicy(context=policy))
    with Session(agent, ":memory:") as session:
        world.send(session, "USER-TASK")
        leaf = next(each for each in session.trace().walk() if each.agent == "leaf")
    assert marks(model, "leaf") == {
        *("MID-TASK", "MID-FACT", "SAFE-FLAG", "HEAD-TASK", "MID-WORDS", "MID-TOOL"),
        "MID-SUBJECT",
    }
    # No prompts, and nothing of the agents above its superior.
    assert leaf.requests[0].sent.context == {
        "preview": "HEAD-TASK go",
        "safety flags": ["SAFE-FLAG"],
        "recent events": [
            "told: HEAD-TASK go",
            "said: MID-WORDS",
            "called: look",
            "look returned: MID-TOOL MID-SUBJECT",
        ],
        "fact": "MID-FACT",
    }


def test_function_decides_what_is_shown(world: World) -> None:
    seen: list[DelegationContext] = []

    def condense(context: DelegationContext) -> DelegationContext:
        seen.append(context)
        return DelegationContext(preview=f"{len(context.recent_events)} events")

    agent, model = team(DelegationPolicy(context=condense))
    with Session(agent, ":memory:") as session:
        world.send(session, "USER-TASK")
    [call] = [each for each in model.calls if each.agent == "leaf"]
    assert str(call.messages[-2].text) == "preview: 4 events\nfact: MID-FACT"
    assert seen[0].preview == "HEAD-TASK go"


def fail(context: DelegationContext) -> DelegationContext:
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("condense", "why"), [(fail, "no idea"), (lambda context: "text", "it returned str")]
)
def test_a_function_that_fails_is_named_and_the_turn_can_go_on(
    world: World, condense: Any, why: str
) -> None:
    model = ScriptedModel({"head": follow([delegate("leaf", "go"), "end"]), "leaf": ["done"]})
    rules = DelegationPolicy(context=condense)
    agent = Agent("head", model=model, delegation=rules, subordinates=[Agent("leaf")])
    with Session(agent, ":memory:") as session:
        with raises_code("context_failed", match=why) as caught:
            world.send(session, "go")
    assert caught.value.agent == "head"


@pytest.mark.parametrize(
    "values", [{"tokens": 0}, {"events": -1}, {"safety_flags": ("",)}, {"preview": 1}]
)
def test_bad_settings_of_a_context_are_refused(values: Any) -> None:
    with pytest.raises(InvalidSetting):
        ContextPolicy(**values)


@pytest.mark.parametrize("given", [3, "all", ContextPolicy])
def test_what_is_no_policy_of_contexts_is_refused(given: Any) -> None:
    with pytest.raises(InvalidSetting, match="context"):
        DelegationPolicy(context=given)


def test_policy_shows_where_the_files_of_a_subordinate_are(world: World, tmp_path: Path) -> None:
    agent, model = team(DelegationPolicy(context=ContextPolicy(events=0)))
    with Session(agent, ":memory:", workspace=tmp_path) as session:
        world.send(session, "go")
    [call] = [each for each in model.calls if each.agent == "leaf"]
    told = str(call.messages[-2].text)
    assert told == 'workspace: ["subagents/head/mid/leaf/"]\nfact: MID-FACT'
