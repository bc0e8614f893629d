"""The agents that a session lets be spawned are checked, and known by a digest."""

from __future__ import annotations

from typing import Any

import pytest

from echelons import Agent, Human, Session
from echelons.delegation.spawned_agents import check_spawnable, get_spawnable
from echelons.run_context import CONTEXT_KEY, RunContext
from tests.error_codes import raises_code


def search(query: str) -> str:
    """Search."""
    return query


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        "clerk",
        [Agent("clerk")],
        {"clerk": "clerk"},
        {"clerk": Human("clerk", "A person")},
        {"clerk": search},
        {"": Agent("clerk")},
        {7: Agent("clerk")},
        {"a\nb": Agent("clerk")},
    ],
)
def test_what_is_no_mapping_of_agents_is_refused(wrong: Any) -> None:
    with raises_code("invalid_option", match="spawnable"):
        Session(Agent("head"), ":memory:", spawnable=wrong)


def test_digest_distinguishes_agents() -> None:
    agents = [
        Agent("clerk"),
        Agent("clerk", prompt="Be kind."),
        Agent("clerk", tools=[search]),
        Agent("clerk", subordinates=[Agent("aide")]),
    ]

    known = check_spawnable({str(place): each for place, each in enumerate(agents)})

    assert len({each.digest for each in known.values()}) == len(agents)
    assert check_spawnable({"x": Agent("clerk")})["x"].digest == known["0"].digest
    assert [each.levels for each in known.values()] == [1, 1, 1, 2]


def test_a_run_without_them_has_none() -> None:
    known = check_spawnable({"clerk": Agent("clerk")})

    assert get_spawnable({"configurable": {}}) == check_spawnable(None) == {}
    assert get_spawnable({"configurable": {CONTEXT_KEY: RunContext(spawnable=known)}}) is known
