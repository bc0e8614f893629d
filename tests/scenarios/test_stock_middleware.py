"""LangChain's stock middleware at the second level of a tree, beside `create_agent`.

Each follows one script in both, and has the same visible effect: what the model is given, how often
the tool is run, and what is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    TodoListMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool

from echelons import Agent, Decision, Session
from echelons.testing import ScriptedModel, delegate
from tests.scenarios.drivers.stock import CASES, SEARCH, scripted

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

TASK: Any = {"messages": [("user", "mail ann@example.com about Rome")]}


@dataclass
class Script:
    """What a model does, and what is seen of it.

    Attributes:
        steps: Its replies, one after the other.
        others: Further models of a middleware, by a name.
        runs: The runs of the tool.
        failures: How many runs fail, from the first.
    """

    steps: Sequence[Any]
    failures: int = 0
    runs: list[str] = field(default_factory=list)

    def build_model(self) -> ScriptedModel:
        left = iter(self.steps)
        return ScriptedModel(lambda messages: next(left))

    def build_tools(self) -> list[Any]:
        @tool
        def search(place: str) -> str:
            """Search a place."""
            self.runs.append(place)
            if len(self.runs) <= self.failures:
                raise ConnectionError("no connection")
            return f"all about {place}"

        @tool
        def weather(place: str) -> str:
            """Tell the weather of a place."""
            return f"sun in {place}"

        return [search, weather]


def read(model: ScriptedModel) -> list[list[tuple[str, str]]]:
    """Return what each call of a model was shown, without instructions."""
    return [
        [(each.type, str(each.text)) for each in call.messages if each.type != "system"]
        for call in model.calls
    ]


@pytest.mark.parametrize("name", CASES)
def test_a_stock_middleware_has_the_effect_that_it_has_in_create_agent(
    world: World, name: str
) -> None:
    case = CASES[name]
    theirs, ours = Script(case.steps, case.failures), Script(case.steps, case.failures)
    model = theirs.build_model()
    graph: Any = create_agent(model, theirs.build_tools(), middleware=[case.build()])
    expected: BaseMessage = world.invoke(graph, TASK)["messages"][-1]

    own = ours.build_model()
    mid = Agent(
        "mid",
        model=own,
        tools=ours.build_tools(),
        subordinates=[Agent("leaf", model=ScriptedModel(["unused"]))],
        middleware=[case.build()],
    )
    task = TASK["messages"][0][1]
    head = ScriptedModel([delegate("mid", task), "end"])
    with Session(Agent("head", model=head, subordinates=[mid]), ":memory:") as session:
        assert world.send(session, task).text == "end"
    assert ours.runs == theirs.runs
    assert read(own) == read(model)
    answer = str(head.calls[-1].messages[-1].text)
    assert answer == str(expected.text)


def test_a_todo_list_is_shown_to_the_model_as_instructions(world: World) -> None:
    model = ScriptedModel({"head": [delegate("mid", "go"), "end"], "mid": ["done"]})
    mid = Agent("mid", middleware=[TodoListMiddleware()])
    agent = Agent("head", model=model, subordinates=[mid])
    world.invoke(agent.compile(), TASK)
    [call] = [each for each in model.calls if each.agent == "mid"]
    assert "write_todos" in str(call.messages[0].text)
    assert "write_todos" in call.tools


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(
    ("decision", "runs", "told"),
    [
        (Decision("approve"), ["Rome"], "all about Rome"),
        (Decision("reject", "not there"), [], "not there"),
        (
            Decision("edit", edited_action={"name": "search", "args": {"place": "Oslo"}}),
            ["Oslo"],
            "all about Oslo",
        ),
    ],
)
def test_a_human_in_the_loop_is_asked_in_the_inbox_and_decides(
    world: World, mode: Any, decision: Decision, runs: list[str], told: str
) -> None:
    script = Script([SEARCH, "done"])
    model = script.build_model()
    review = HumanInTheLoopMiddleware(
        {"search": {"allowed_decisions": ["approve", "edit", "reject"]}}, interrupt_mode=mode
    )
    mid = Agent("mid", model=model, tools=script.build_tools(), middleware=[review])
    head = ScriptedModel([delegate("mid", "go"), "end"])
    with Session(Agent("head", model=head, subordinates=[mid]), ":memory:") as session:
        result = world.send(session, "go")
        [question] = result.questions
        assert question.path == "head/mid"
        assert script.runs == []
        assert world.answer(session, {question.id: decision}).text == "end"
    assert script.runs == runs
    results = [each for each in model.calls[-1].messages if each.type == "tool"]
    assert told in str(results[-1].text)


def test_a_limit_of_a_thread_counts_over_the_requests_of_a_subordinate(world: World) -> None:
    model = scripted("one", "two", "three")
    limit = ModelCallLimitMiddleware(thread_limit=2, exit_behavior="end")
    mid = Agent("mid", model=model, middleware=[limit])
    head = scripted(*[step for _ in range(3) for step in (delegate("mid", "go"), "end")])
    with Session(Agent("head", model=head, subordinates=[mid]), ":memory:") as session:
        for _ in range(3):
            world.send(session, "go")
    assert len(model.calls) == 2
    assert "limit" in str(head.calls[-1].messages[-1].text)


def test_a_reply_of_a_fallback_counts_as_a_call_of_its_agent(world: World) -> None:
    model = scripted(ConnectionError("down"))
    second = scripted(AIMessage("second", usage_metadata=_usage(5, 7)))
    mid = Agent("mid", model=model, middleware=[ModelFallbackMiddleware(second)])
    head = scripted(delegate("mid", "go"), "end")
    with Session(Agent("head", model=head, subordinates=[mid]), ":memory:") as session:
        result = world.send(session, "go")
    assert result.usage.output_tokens == 7


def _usage(given: int, said: int) -> Any:
    return {"input_tokens": given, "output_tokens": said, "total_tokens": given + said}
