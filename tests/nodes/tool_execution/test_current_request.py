"""What a tool finds out about the agent that calls it."""

from __future__ import annotations

import logging

import pytest

from echelons import Agent, Session, get_logger, subordinate
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code


def test_each_level_logs_with_its_own_path_and_thread(caplog: pytest.LogCaptureFixture) -> None:
    def look() -> str:
        """Look."""
        get_logger().info("looked")
        return "found"

    def count(task: str) -> str:
        """Count."""
        get_logger().warning("counted")
        return "3"

    model = ScriptedModel(
        {
            "head": [Call("look"), delegate("mid", "go"), "end"],
            "mid": [Call("look"), delegate("counter", "go"), "done"],
        }
    )
    mid = Agent("mid", tools=[look], subordinates=[subordinate(count, name="counter")])
    head = Agent("head", model=model, tools=[look], subordinates=[mid])
    with caplog.at_level(logging.INFO, "echelons.agents"), Session(head, ":memory:") as session:
        session.send("go").result()
        threads = {each.agent: each.thread_id for each in session.trace().walk()}
    told = [
        (each.name, vars(each)["agent_path"], vars(each)["thread_id"]) for each in caplog.records
    ]
    assert told == [
        ("echelons.agents.head", "head", threads["head"]),
        ("echelons.agents.head.mid", "head/mid", threads["mid"]),
        ("echelons.agents.head.mid.counter", "head/mid/counter", threads["counter"]),
    ]


def test_outside_of_an_agents_work_there_is_no_logger() -> None:
    with raises_code("no_request", match="get_logger"):
        get_logger()
