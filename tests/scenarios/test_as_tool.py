"""Trees as tools of other frameworks' agents, with questions that their hosts pass on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from pydantic import BaseModel

from echelons import Agent, Contract, Permissions
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code


class Query(BaseModel):
    city: str
    nights: int = 1


class Hotel(BaseModel):
    name: str


def follow(steps: Any) -> Any:
    left = iter(steps)
    return lambda messages: next(left)


def tree(leaf: Any, **more: Any) -> Agent:
    """Return a tree of three levels whose leaf takes these steps."""
    model = ScriptedModel(
        {
            "travel": [delegate("mid", "go"), '{"name": "Ibis"}'],
            "mid": [delegate("leaf", "go"), "done"],
            "leaf": leaf,
        }
    )
    rules = Permissions(contact_user=True)
    mid = Agent("mid", subordinates=[Agent("leaf", permissions=rules)], permissions=rules)
    return Agent(
        "travel", "Plans trips", model=model, subordinates=[mid], permissions=rules, **more
    )


def host(agent: Agent, args: dict[str, Any], saver: Any = None) -> Any:
    """Return an agent of LangChain's that calls the tree once."""
    model = ScriptedModel([Call("travel", args), "Have a nice trip."])
    return create_agent(model, [agent.as_tool()], checkpointer=saver)


def test_a_tree_is_a_tool_of_a_create_agent() -> None:
    state = host(tree(["here"]), {"task": "to Rome"}).invoke({"messages": [("user", "go")]})
    told = [each for each in state["messages"] if each.type == "tool"]
    assert [(each.name, each.text) for each in told] == [("travel", '{"name": "Ibis"}')]
    assert state["messages"][-1].text == "Have a nice trip."


async def test_it_is_one_in_an_event_loop_too() -> None:
    graph = host(tree(["here"]), {"task": "to Rome"})
    state = await graph.ainvoke({"messages": [("user", "go")]})
    assert state["messages"][-2].text == '{"name": "Ibis"}'


def test_its_arguments_and_its_result_are_those_of_its_contract() -> None:
    seen: list[Any] = []

    def prompt(state: Any) -> str:
        seen.append(state["payload"])
        return ""

    contract = Contract(input=Query, output=Hotel)
    agent = tree(["here"], contract=contract, prompt=prompt)
    assert agent.as_tool().args_schema is Query
    state = host(agent, {"city": "Rome", "nights": 2}).invoke({"messages": [("user", "go")]})
    assert json.loads(state["messages"][-2].text) == {"name": "Ibis"}
    assert seen == [Query(city="Rome", nights=2)] * 2


def test_a_question_of_the_third_level_is_answered_in_another_host(tmp_path: Path) -> None:
    steps = [Call("ask_user", {"question": "By train?"}), "done"]
    config: Any = {"configurable": {"thread_id": "trip"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "host.sqlite")) as saver:
        asked = host(tree(steps), {"task": "to Rome"}, saver).invoke(
            {"messages": [("user", "go")]}, config
        )
        [interrupt] = asked["__interrupt__"]
        assert interrupt.value["question"] == "By train?"
    # Other objects, as in another process.
    with SqliteSaver.from_conn_string(str(tmp_path / "host.sqlite")) as saver:
        again = tree(steps)
        done = host(again, {"task": "to Rome"}, saver).invoke(Command(resume="yes"), config)
    assert done["messages"][-1].text == "Have a nice trip."
    model: Any = again.model
    # Only what comes after the answer was asked of the models.
    assert [each.agent for each in model.calls] == ["leaf", "mid", "travel"]


def test_two_calls_in_one_message_are_threads_of_their_own() -> None:
    agent = tree(["here"])
    both = [Call("travel", {"task": "to Rome"}), Call("travel", {"task": "to Bari"})]
    graph: Any = create_agent(ScriptedModel([both, "done"]), [agent.as_tool()])
    state = graph.invoke({"messages": [("user", "go")]})
    assert len([each for each in state["messages"] if each.type == "tool"]) == 2


def test_a_result_that_is_no_output_is_an_error_for_the_host() -> None:
    model = ScriptedModel(["no", "never", "not at all"])
    agent = Agent("travel", "Plans", model=model, response_format=Hotel)
    state = host(agent, {"task": "to Rome"}).invoke({"messages": [("user", "go")]})
    told = state["messages"][-2]
    assert told.status == "error"
    assert "was not of the type Hotel 3 times" in told.text


@pytest.mark.parametrize("description", ["", " ", 3])
def test_a_tool_without_a_description_is_refused(description: Any) -> None:
    with raises_code("invalid_field", match="a tool needs one"):
        Agent("travel").as_tool(description=description)
