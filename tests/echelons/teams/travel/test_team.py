"""The travel team: its tree, its tools and the words that lead to its agents."""

from __future__ import annotations

import pytest

from echelons.agent import Agent
from echelons.teams.travel.team import team
from echelons.text.stemming import extract_words, stem


def agents() -> dict[str, Agent]:
    head = team()
    found: dict[str, Agent] = {}
    queue = [head]
    while queue:
        agent = queue.pop()
        found[agent.name] = agent
        queue += [each for each in agent.subordinates if isinstance(each, Agent)]
    return found


def stemmed(phrase: str) -> list[str]:
    return [stem(word) for word in extract_words(phrase)]


def leading_to(phrase: str) -> set[str]:
    """The agents that declare ``phrase``, in whatever form, as a capability."""
    return {
        name
        for name, agent in agents().items()
        if any(stemmed(phrase) == stemmed(capability) for capability in agent.capabilities)
    }


def test_the_tree_is_a_head_with_three_agents_one_of_which_has_three() -> None:
    tree = {name: [each.name for each in agent.subordinates] for name, agent in agents().items()}
    assert tree == {
        "head": ["flights", "hotels", "experiences"],
        "experiences": ["restaurants", "tours", "events"],
        "flights": [],
        "hotels": [],
        "restaurants": [],
        "tours": [],
        "events": [],
    }


def test_every_agent_without_subordinates_has_tools_and_the_others_have_none() -> None:
    tools = {name: [tool.name for tool in agent.tools] for name, agent in agents().items()}
    assert tools == {
        "head": [],
        "experiences": [],
        "flights": ["find_flights"],
        "hotels": ["find_places_to_stay"],
        "restaurants": ["find_food", "reserve_table"],
        "tours": ["find_tours"],
        "events": ["find_events"],
    }


def test_every_tool_and_every_argument_is_described() -> None:
    for agent in agents().values():
        for tool in agent.tools:
            assert tool.description
            assert "Returns:" not in tool.description
            assert all(argument["description"] for argument in tool.args.values()), tool.name


def test_every_agent_is_described_and_every_capability_is_lower_case() -> None:
    for agent in agents().values():
        assert agent.description
        assert agent.prompt
        assert all(word == word.lower().strip() for word in agent.capabilities)


def test_every_capability_says_something() -> None:
    for agent in agents().values():
        assert all(stemmed(word) for word in agent.capabilities), agent.name


@pytest.mark.parametrize("word", ["trip", "travelling", "holidays", "vacation", "honeymoon"])
def test_a_trip_needs_flights_and_hotels(word: str) -> None:
    assert leading_to(word) == {"flights", "hotels"}


@pytest.mark.parametrize("phrase", ["activity", "experience", "things to do", "what to do"])
def test_things_to_do_are_what_experiences_hands_to_tours_and_events(phrase: str) -> None:
    assert leading_to(phrase) == {"experiences", "tours", "events"}


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("flying", "flights"),
        ("airport", "flights"),
        ("accommodation", "hotels"),
        ("staying", "hotels"),
        ("bed and breakfast", "hotels"),
        ("eating", "restaurants"),
        ("pizzas", "restaurants"),
        ("dinner", "restaurants"),
        ("beer gardens", "restaurants"),
        ("museum", "tours"),
        ("sights", "tours"),
        ("guide", "tours"),
        ("day trips", "tours"),
        ("concert", "events"),
        ("operas", "events"),
        ("festival", "events"),
        ("shows", "events"),
    ],
)
def test_a_word_leads_to_the_agent_that_it_is_about(word: str, name: str) -> None:
    assert leading_to(word) == {name}
