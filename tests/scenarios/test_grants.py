"""What an agent is granted: tools, paths and hosts, of which those below it have a part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.config import get_config

from echelons import Agent, Permissions, Session
from echelons.errors import InvalidSetting, PermissionsWidened
from echelons.guards.permissions import Grant, find_wider
from echelons.run_context import get_context
from echelons.testing import Call, ScriptedModel, delegate
from echelons.workspace_tools import file_tools
from tests.error_codes import raises_code
from tests.told_lines import without_marks

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def follow(steps: Any) -> Any:
    left = iter(steps)
    return lambda messages: next(left)


def look() -> str:
    """Tell what is granted here."""
    return str(get_context(get_config()).rights)


def pay() -> str:
    """Pay."""
    return "paid"


def team(head: Any, mid: Any, leaf: Any = None, tools: Any = (look,)) -> Agent:
    """Return a tree of three levels with these permissions."""
    below = Agent("leaf", tools=tools, permissions=leaf or Permissions())
    middle = Agent("mid", subordinates=[below], permissions=mid)
    return Agent("head", subordinates=[middle], permissions=head)


def test_a_subordinate_has_what_its_superiors_grant_narrowed_by_its_own(world: World) -> None:
    model = ScriptedModel(
        {
            "head": follow([delegate("mid", "go"), "end"]),
            "mid": follow([delegate("leaf", "go"), "done"]),
            "leaf": follow([Call("look"), "done"]),
        }
    )
    below = Agent("leaf", tools=[look], permissions=Permissions(paths=("docs/api",)))
    mid = Agent("mid", subordinates=[below], permissions=Permissions(network=("*.example.org",)))
    rules = Permissions(tools=("look",), paths=("docs", "src"))
    head = Agent("head", model=model, subordinates=[mid], permissions=rules)
    with Session(head, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    told = str(model.calls[-3].messages[-1].text)
    assert told == str(Grant(("look",), ("docs/api",), ("*.example.org",)))


@pytest.mark.parametrize(
    ("above", "own", "name"),
    [
        ({"tools": ()}, {}, "tools"),
        ({"tools": ("look",)}, {"tools": ("look", "pay")}, "tools"),
        ({"paths": ("docs",)}, {"paths": ("docs", "src")}, "paths"),
        ({"paths": ("docs",)}, {"paths": (".",)}, "paths"),
        ({"paths": ("docs",)}, {"paths": ("docs2",)}, "paths"),
        ({"paths": ()}, {"paths": ("docs",)}, "paths"),
        ({"network": ("example.org",)}, {"network": ("*.example.org",)}, "network"),
        ({"network": ("*.example.org",)}, {"network": ("example.org",)}, "network"),
        ({"network": ("*.example.org",)}, {"network": ("badexample.org",)}, "network"),
    ],
)
def test_more_than_a_superior_grants_is_refused_when_the_tree_is_made(
    above: Any, own: Any, name: str
) -> None:
    tools = (look, pay) if "tools" in own else (look,)
    with pytest.raises(PermissionsWidened) as caught:
        team(Permissions(**above), Permissions(), Permissions(**own), tools)
    assert (caught.value.name, caught.value.superior) == (name, "head")
    assert caught.value.agent == "head/mid/leaf"


def test_a_tool_that_is_not_granted_is_refused_wherever_it_comes_from() -> None:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.tools import tool

    class Paying(AgentMiddleware[Any, Any]):
        tools = [tool(pay)]

    rules = Permissions(tools=("look",))
    with pytest.raises(PermissionsWidened, match="the tool pay"):
        Agent("head", tools=[look], middleware=[Paying()], permissions=rules)
    with pytest.raises(PermissionsWidened, match="web_search"):
        Agent("head", tools=[look, {"type": "web_search"}], permissions=rules)


def test_a_name_that_no_tool_has_is_refused() -> None:
    with raises_code("unknown_tool", match="'lok'"):
        Agent("head", tools=[look], permissions=Permissions(tools=("lok",)))


@pytest.mark.parametrize(
    "values",
    [
        {"tools": "look"},
        {"tools": [""]},
        {"tools": [3]},
        {"paths": ["/etc"]},
        {"paths": ["docs/../.."]},
        {"paths": ["a\\b"]},
        {"network": ["https://example.org"]},
        {"network": ["Example.org"]},
        {"network": ["*"]},
        {"network": ["*example.org"]},
    ],
)
def test_what_is_no_grant_is_refused(values: Any) -> None:
    with pytest.raises(InvalidSetting):
        Permissions(**values)


def test_a_tree_in_a_tool_has_the_grant_of_the_agent_that_runs_it(world: World) -> None:
    inner_model = ScriptedModel(follow([Call("pay"), "inner done"]))
    inner = Agent("inner", "Pays", model=inner_model, tools=[pay])
    model = ScriptedModel(follow([Call("inner", {"task": "go"}), "end"]))
    rules = Permissions(tools=("inner",))
    agent = Agent("head", model=model, tools=[inner.as_tool()], permissions=rules)
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    told = str(inner_model.calls[-1].messages[-1].text)
    assert without_marks(told) == "Error: the tool 'pay' is not granted to you; granted are: inner"


NAMES = st.lists(st.sampled_from(["a", "a/b", "a/b/c", "b", "."]), max_size=3).map(tuple)
GRANTS = st.builds(Grant, st.none() | NAMES, st.none() | NAMES)


@given(GRANTS, GRANTS, st.sampled_from(["a", "a/b", "a/b/c", "b", "c", "a2"]))
def test_no_grant_below_allows_what_one_above_refuses(above: Grant, own: Grant, path: str) -> None:
    narrowed = above.narrow(own)
    assert find_wider(above, narrowed) is None
    assert narrowed.allows_path(path) <= (above.allows_path(path) and own.allows_path(path))
    assert narrowed.allows_tool(path) == (above.allows_tool(path) and own.allows_tool(path))


def test_file_tools_reach_only_the_granted_files_and_those_of_the_agents_own(
    world: World, tmp_path: Path
) -> None:
    for name in ("docs/plan.md", "secret.md"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("words", encoding="utf-8")
    calls = [
        Call("list_files", {}),
        Call("read_file", {"path": "secret.md"}),
        Call("write_file", {"path": "docs2/plan.md", "text": "x"}),
        Call("search_files", {"pattern": "words"}),
        Call("write_file", {"path": "subagents/head/writer/own.md", "text": "x"}),
        Call("write_file", {"path": "docs/plan.md", "text": "y"}),
    ]
    model = ScriptedModel(
        {"head": follow([delegate("writer", "go"), "end"]), "writer": follow([*calls, "done"])}
    )
    writer = Agent("writer", tools=file_tools())
    rules = Permissions(paths=("docs",))
    head = Agent("head", model=model, subordinates=[writer], permissions=rules)
    with Session(head, ":memory:", workspace=tmp_path) as session:
        assert world.send(session, "go").text == "end"
        changed = [each.path for each in session.changes("head/writer")]
    told = [str(each.messages[-1].text) for each in model.calls if each.agent == "writer"][1:]
    assert told[0] == "docs/plan.md"
    assert told[1] == "Error: 'secret.md': it is not granted to you; granted are: 'docs'"
    assert "'docs2/plan.md': it is not granted" in told[2]
    assert told[3] == "docs/plan.md:1: words"
    assert changed == ["docs/plan.md", "subagents/head/writer/own.md"]
