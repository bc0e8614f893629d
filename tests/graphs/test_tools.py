"""Each tool of a tree is made and tried out once."""

from __future__ import annotations

from langchain_core.tools import tool

from echelons import Agent
from echelons.graphs.tools import probe_tree


def look(place: str) -> str:
    """Look around."""
    return f"seen {place}"


@tool
def write(text: str) -> str:
    """Write something down."""
    return text


def test_a_function_that_several_agents_have_becomes_one_tool() -> None:
    searches = {"type": "web_search", "name": "search"}
    scout = Agent("scout", tools=[look, write])
    north = Agent("north", tools=[look], subordinates=[scout])
    tools = probe_tree(Agent("head", tools=[searches, look], subordinates=[north]))

    assert tools.keys() == {id(look), id(write)}
    assert tools[id(write)] is write
    assert tools[id(look)].invoke({"place": "the north"}) == "seen the north"
