"""Agents of a team's folder: one tree in every process, and Python only where it is trusted."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelons import Agent, BreakerPolicy, DelegationPolicy, Limits, Permissions, Session, Spawn
from echelons.agent import get_compiled
from echelons.delegation.context import ContextPolicy
from echelons.errors import TeamNotTrusted
from echelons.memory import Memory
from echelons.profiles.builder import (
    check_team_folder,
    load_profile,
    load_spawnable,
    sketch_team_folder,
)
from echelons.profiles.settings_file import get_field_types
from echelons.teams.travel.team import team
from echelons.testing import Call, ScriptedModel, delegate
from echelons.tree.members import fingerprint_tree, walk_tree
from echelons.tree.name_themes import load_theme
from tests.echelons.profiles.conftest import Write
from tests.error_codes import raises_code
from tests.fork_server import ForkServer

TRAVEL = Path(__file__).parent / "travel"
MARK = "from pathlib import Path\nPath({mark!r}).write_text('executed')\n"
TOOL = 'def look(task: str) -> str:\n    """Look at it."""\n    return f"seen {task}"\n'
TEAM = {
    "prompt.md": "You lead.",
    "default/prompt.md": "You work.",
    "middle/settings.toml": "description = 'Passes it on'",
    "middle/clerk/settings.toml": "description = 'Looks'",
    "middle/clerk/tools/look.py": TOOL,
}


def test_the_travel_team_as_a_folder_is_the_shipped_one() -> None:
    built, shipped = Agent.from_folder(TRAVEL, trusted=True), team()

    assert built.draw().text == shipped.draw().text
    assert built.draw().mermaid == shipped.draw().mermaid
    assert fingerprint_tree(built) == fingerprint_tree(shipped)
    for one, other in zip(walk_tree(built), walk_tree(shipped), strict=True):
        ours, theirs = one.member, other.member
        assert isinstance(ours, Agent)
        assert isinstance(theirs, Agent)
        assert (one.path, ours.prompt) == (other.path, theirs.prompt)
        assert ours.capabilities.full == theirs.capabilities.full  # type: ignore[attr-defined]
        assert (ours.limits, ours.delegation) == (theirs.limits, theirs.delegation)
        assert ours.permissions == theirs.permissions
        assert [each.name for each in ours.tools] == [each.name for each in theirs.tools]
        assert [each.args for each in ours.tools] == [each.args for each in theirs.tools]


def test_a_sketch_has_the_same_drawing_and_fingerprint_and_executes_nothing() -> None:
    sketch = sketch_team_folder(TRAVEL)

    assert sketch.draw().text == team().draw().text
    assert fingerprint_tree(sketch) == fingerprint_tree(team())
    with pytest.raises(TeamNotTrusted, match=r"flights\.py"):
        sketch.subordinates[0].tools[0].invoke({})  # type: ignore[attr-defined]


def test_the_fingerprint_is_the_same_in_another_process(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    code = (
        "import sys; from echelons import Agent; from echelons.tree.members import "
        "fingerprint_tree; print(fingerprint_tree(Agent.from_folder(sys.argv[1], trusted=True)))"
    )
    ran = fork_server.run("-c", code, str(TRAVEL), cwd=tmp_path)

    assert ran.stdout.strip() == fingerprint_tree(Agent.from_folder(TRAVEL, trusted=True))


def test_python_is_executed_only_in_a_trusted_folder(write: Write, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    folder = write({**TEAM, "middle/clerk/tools/look.py": MARK.format(mark=str(mark)) + TOOL})

    with pytest.raises(TeamNotTrusted) as refused:
        Agent.from_folder(folder)
    assert refused.value.files == ("middle/clerk/tools/look.py",)
    assert sketch_team_folder(folder).draw().text.count("──") == 2
    assert not mark.exists()

    Agent.from_folder(folder, trusted=True)
    assert mark.exists()


def test_a_folder_without_python_needs_no_trust(write: Write) -> None:
    agent = Agent.from_folder(
        write({"prompt.md": "You lead.\n", "settings.toml": "[limits]\ncalls = 7"})
    )

    assert (agent.name, agent.prompt, agent.limits) == ("office", "You lead.", Limits(calls=7))
    assert get_compiled(agent) is None


def test_built_in_tools_are_named_in_the_settings(write: Write) -> None:
    files = {
        "prompt.md": "You lead.\n",
        "settings.toml": "builtin_tools = ['call_subordinate', 'ask']",
        "clerk/prompt.md": "You look.\n",
        "clerk/settings.toml": "builtin_tools = []",
    }
    agent = replace(Agent.from_folder(write(files)), model=ScriptedModel(["fine"]))

    assert agent.builtin_tools == ("call_subordinate", "ask")
    assert agent.subordinates[0].builtin_tools == ()  # type: ignore[attr-defined]
    with Session(agent, ":memory:") as session:
        session.send("go").result()
    assert agent.model.calls[0].tools == ("call_subordinate", "ask")  # type: ignore[union-attr]

    # A right name in a wrong place is refused when the tree is made.
    wrong = Agent.from_folder(write({**files, "clerk/settings.toml": "builtin_tools = ['recall']"}))
    with raises_code("invalid_field", match=r"clerk.*'recall'.*some of: "):
        wrong.compile()


def test_a_tool_on_the_third_level_runs(write: Write) -> None:
    agent = Agent.from_folder(write(TEAM), trusted=True)
    model = ScriptedModel(
        {
            "office": [delegate("middle", "look"), "Done."],
            "middle": [delegate("clerk", "look"), "Passed on."],
            "clerk": [Call("look", {"task": "the lamp"}), "Seen."],
        }
    )

    with Session(replace(agent, model=model), ":memory:") as session:
        assert session.send("Look").result().text == "Done."
    said = [str(each.content) for call in model.calls for each in call.messages]
    assert any("seen the lamp" in each for each in said)


def test_tools_of_default_reach_an_agent_only_where_its_settings_name_them(write: Write) -> None:
    agent = Agent.from_folder(
        write(
            {
                **TEAM,
                "default/tools/shared.py": TOOL.replace("look", "share")
                + TOOL.replace("look", "other"),
                "middle/settings.toml": 'tools = ["share"]',
            }
        ),
        trusted=True,
    )

    tools = {
        place.member.name: [each.__name__ for each in place.member.tools]  # type: ignore[attr-defined]
        for place in walk_tree(agent)
    }
    assert tools == {"office": [], "middle": ["share"], "clerk": ["look"]}


def test_python_of_one_folder_can_import_what_begins_with_an_underscore(write: Write) -> None:
    look = "from ._words import SEEN\n" + TOOL.replace('f"seen {task}"', "SEEN + task")
    files = {"middle/clerk/tools/_words.py": 'SEEN = "saw "\n', "middle/clerk/tools/look.py": look}
    folder = write({**TEAM, **files})

    def look_again() -> str:
        clerk = Agent.from_folder(folder, trusted=True).subordinates[0].subordinates[0]
        return str(clerk.tools[0]("it"))  # type: ignore[attr-defined]

    assert look_again() == "saw it"
    write({"middle/clerk/tools/_words.py": 'SEEN = "has watched "\n'})
    assert look_again() == "has watched it"


def test_tools_may_be_listed_decorated_and_named(write: Write) -> None:
    code = (
        "from langchain_core.tools import tool\n"
        '@tool("glance")\ndef look(task: str) -> str:\n    """Look."""\n    return task\n'
        "def _helper(): ...\nclass Helper: ...\n"
    )
    listed = (
        '__all__ = ["stare"]\n\ndef helper(): ...\n\n'
        'def stare(task: str) -> str:\n    """Stare."""\n    return task\n'
    )
    folder = write(
        {**TEAM, "middle/clerk/tools/look.py": code, "middle/clerk/tools/stare.py": listed}
    )

    for agent in (Agent.from_folder(folder, trusted=True), sketch_team_folder(folder)):
        tools = agent.subordinates[0].subordinates[0].tools  # type: ignore[attr-defined]
        assert [getattr(each, "name", None) or each.__name__ for each in tools] == [
            "glance",
            "stare",
        ]


@pytest.mark.parametrize(
    ("code", "place", "said"),
    [
        ("x = 1\nraise RuntimeError('no\\nluck')\n", ":2", "RuntimeError: no"),
        ("import nowhere_at_all\n", ":1", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", ":1", "SystemExit: 3"),
        ("__all__ = ['x']\nx = 3\n", "", "3 is no tool"),
        ("__all__ = ['x']\nif False:\n    x = 3\n", "", "AttributeError"),
    ],
)
def test_python_that_fails_is_named_with_its_line(
    write: Write, code: str, place: str, said: str
) -> None:
    folder = write({**TEAM, "middle/clerk/tools/look.py": code + TOOL})

    with raises_code("invalid_profile") as refused:
        Agent.from_folder(folder, trusted=True)

    where, why = refused.value.faults[0]
    assert said in why
    assert where == f"middle/clerk/tools/look.py{place}" or not place


def test_two_loads_of_a_folder_see_what_was_changed_between(write: Write) -> None:
    folder = write(TEAM)
    first = Agent.from_folder(folder, trusted=True)
    write({"middle/clerk/tools/look.py": TOOL.replace("seen", "watched")})
    second = Agent.from_folder(folder, trusted=True)

    said = [each.subordinates[0].subordinates[0].tools[0]("it") for each in (first, second)]  # type: ignore[attr-defined]
    assert said == ["seen it", "watched it"]


def test_a_profile_is_loaded_by_its_name_alone(write: Write) -> None:
    folder = write(
        {
            **TEAM,
            "settings.toml": "[permissions.spawn]\nprofiles = ['writer', 'clerk']",
            "default/writer/settings.toml": "description = 'Writes'",
        }
    )

    writer = load_profile(folder, "writer")
    assert (writer.name, writer.description, writer.prompt) == ("writer", "Writes", "You work.")
    assert [each.__name__ for each in load_profile(folder, "clerk", trusted=True).tools] == ["look"]
    with pytest.raises(TeamNotTrusted):
        load_profile(folder, "clerk")
    with raises_code("unknown_profile", match="did you mean 'writer'"):
        load_profile(folder, "writers")
    spawn = Agent.from_folder(folder, trusted=True).permissions.spawn
    assert spawn is not None
    assert spawn.profiles == ("writer", "clerk")


def test_the_profiles_that_agents_may_give_are_loaded_and_no_others(
    write: Write, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    folder = write(
        {
            **TEAM,
            "middle/clerk/tools/look.py": MARK.format(mark=str(mark)) + TOOL,
            "default/writer/prompt.md": "You write.",
            "default/writer/settings.toml": "[permissions.spawn]\nprofiles = ['reader']",
            "default/reader/prompt.md": "You read.",
            "default/other/tools/look.py": TOOL,
            "middle/settings.toml": "[permissions.spawn]\nprofiles = ['writer']",
        }
    )

    found = load_spawnable(folder)

    assert {name: each.prompt for name, each in found.items()} == {
        "writer": "You write.",
        "reader": "You read.",
    }
    assert not mark.exists()
    write({"default/reader/tools/look.py": TOOL})
    with pytest.raises(TeamNotTrusted, match=r"default/reader/tools/look\.py"):
        load_spawnable(folder)
    assert load_spawnable(folder, trusted=True)["reader"].tools


def test_all_that_is_data_stands_in_the_settings(write: Write) -> None:
    text = """
inherit_middleware = true
theme = "birds"
guidance = {reports = "Report."}

[delegation]
timeout = 5
breaker = {failures = 2}

[delegation.context]
tokens = 40
safety_flags = ["no money"]

[permissions]
contact_user = true
network = ["example.org"]
approvals = {clerk = "ask"}

[permissions.spawn]
kinds = ["drone"]
total = 3

[memory]
budget = 900

[limits]
calls = 7
"""
    agent = Agent.from_folder(write({**TEAM, "settings.toml": text}), trusted=True)

    assert agent.inherit_middleware
    assert agent.theme == load_theme("birds")
    assert agent.guidance == {"reports": "Report."}
    context = ContextPolicy(tokens=40, safety_flags=("no money",))
    breaker = BreakerPolicy(failures=2)
    assert agent.delegation == DelegationPolicy(timeout=5, breaker=breaker, context=context)
    spawn = Spawn(kinds=("drone",), total=3)
    assert agent.permissions == Permissions(
        contact_user=True, network=("example.org",), approvals={"clerk": "ask"}, spawn=spawn
    )
    assert (agent.memory, agent.limits) == (Memory(budget=900), Limits(calls=7))
    data = {each.name for each in fields(Agent) if each.init} - {"contract", "response_format"}
    assert get_field_types().keys() == data


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("opnai:gpt-5", "unknown model 'opnai:gpt-5'"),
        ("openai: ", "unknown model 'openai: '"),
        ("anthropic:claude-sonnet-4-5", ""),
        ("openai:gpt-5", ""),
        ("gpt-5", ""),
        ("offline:planner", ""),
    ],
)
def test_a_check_names_a_model_of_no_provider(write: Write, name: str, fault: str) -> None:
    settings = f"description = 'Looks'\nmodel = '{name}'\n"
    folder = write({**TEAM, "middle/clerk/settings.toml": settings})

    told = [f"{each.file}:{each.line} {each.why}" for each in check_team_folder(folder)[1]]

    assert len(told) == bool(fault)
    assert all(each.startswith(f"middle/clerk/settings.toml:2 {fault}") for each in told)


def test_a_check_takes_no_tool_of_a_middleware_for_unknown(write: Write) -> None:
    notes = """
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import tool


@tool
def note(text: str) -> str:
    "Note it."
    return "noted"


class Notes(AgentMiddleware):
    "Brings the tool note."
    tools = [note]
"""
    rules = "description = 'Looks'\n[permissions.approvals]\nnote = 'ask'\n"
    files = {**TEAM, "middle/clerk/settings.toml": rules}
    folder = write({**files, "middle/clerk/middleware/notes.py": notes})

    assert check_team_folder(folder)[1] == ()
    assert sketch_team_folder(folder).draw().text.count("\n") == 2
    Agent.from_folder(folder, trusted=True)
    write({"middle/clerk/settings.toml": rules.replace("note", "nate")})
    assert check_team_folder(folder)[1] == ()
    with raises_code("invalid_profile", match=r"clerk/settings\.toml:3: .*'nate'.*: look, note"):
        Agent.from_folder(folder, trusted=True)


def test_a_text_that_a_superior_replaces_stays_the_librarys_for_its_subordinates(
    write: Write,
) -> None:
    files = {"north/prompt.md": "x", "prompts/reports.md": "Report.", "prompt.md": "x"}
    agent = Agent.from_folder(write(files))

    assert agent.guidance == {"reports": "Report."}
    assert agent.subordinates[0].guidance == {}  # type: ignore[attr-defined]


def test_texts_of_the_library_are_replaced_by_name_from_the_agent_then_from_default(
    write: Write,
) -> None:
    agent = Agent.from_folder(
        write(
            {
                "prompt.md": "You lead.",
                "default/prompt.md": "You work.",
                "default/prompts/superior.md": "Obey for $5.\n",
                "default/prompts/results.md": "",
                "north/prompts/superior.md": "Do as {you} like.\n",
            }
        )
    )
    model = ScriptedModel({"office": [delegate("north", "go"), "Done."], "north": ["Gone."]})

    with Session(replace(agent, model=model), ":memory:") as session:
        session.send("Go").result()

    head, north, _ = (call.messages[0].text.split("\n\n") for call in model.calls)
    assert head[:3] == ["You lead.", "You are office, an agent in a team.", "Obey for $5."]
    assert (north[0], north[2]) == ("You work.", "Do as {you} like.")
    assert not [each for each in (*head, *north) if "is data: judge it" in each]


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
CAPABILITIES = st.dictionaries(TEXTS.filter(str.strip), st.floats(0, 1), max_size=3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), TEXTS, TEXTS, CAPABILITIES), max_size=8))
def test_any_tree_written_as_a_folder_is_that_tree(
    tmp_path_factory: pytest.TempPathFactory,
    members: list[tuple[int, str, str, dict[str, float]]],
) -> None:
    root = tmp_path_factory.mktemp("any") / "a"
    folders, agents = [root], [Agent("a", prompt="x")]
    below: dict[int, list[int]] = {}
    for number, (place, description, prompt, capabilities) in enumerate(members, start=1):
        superior = place % number
        below.setdefault(superior, []).append(number)
        folders.append(folders[superior] / f"a{number}")
        own = {"prompt": prompt.strip(), "capabilities": capabilities}
        agents.append(Agent(f"a{number}", description, **own))  # type: ignore[arg-type]
    for number in reversed(range(len(agents))):
        inner = tuple(agents[each] for each in below.get(number, ()))
        agents[number] = agent = replace(agents[number], subordinates=inner)
        folders[number].mkdir(parents=True, exist_ok=True)
        lines = [f"description = {json.dumps(agent.description, ensure_ascii=False)}"]
        lines += ["[capabilities]"]
        lines += [
            f"{json.dumps(name, ensure_ascii=False)} = {value!r}"
            for name, value in agent.capabilities.items()
        ]
        (folders[number] / "settings.toml").write_text("\n".join(lines), encoding="utf-8")
        (folders[number] / "prompt.md").write_text(f"{agent.prompt}\n", encoding="utf-8")

    built = Agent.from_folder(root)

    assert fingerprint_tree(built) == fingerprint_tree(agents[0])
    for one, other in zip(walk_tree(built), walk_tree(agents[0]), strict=True):
        for name in ("name", "description", "prompt", "capabilities"):
            assert getattr(one.member, name) == getattr(other.member, name)


def test_a_folder_brings_middleware_and_a_memory_of_its_agents(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    diary = """
from langchain.agents.middleware import AgentMiddleware, before_model


class Diary(AgentMiddleware):
    def before_model(self, state, runtime):
        print("the diary sees", len(state["messages"]))


@before_model
def look(state, runtime):
    print("a look")
"""
    settings_of = "description = 'Looks'\n[memory]\nbudget = 900\nrecent = 2\n"
    folder = write(
        {
            **TEAM,
            "middle/clerk/settings.toml": settings_of,
            "middle/clerk/middleware/diary.py": diary,
        }
    )
    with pytest.raises(TeamNotTrusted, match=r"diary\.py"):
        Agent.from_folder(folder)

    team_of = Agent.from_folder(folder, trusted=True)

    clerk = next(each.member for each in walk_tree(team_of) if each.member.name == "clerk")
    assert isinstance(clerk, Agent)
    assert clerk.memory == Memory(budget=900, recent=2)
    model = ScriptedModel(
        {
            team_of.name: [delegate("middle", "go"), "end"],
            "middle": [delegate("clerk", "go"), "done"],
            "clerk": ["seen"],
        }
    )
    with Session(replace(team_of, model=model), ":memory:") as session:
        assert session.send("go").result().text == "end"
    assert capsys.readouterr().out.splitlines() == ["the diary sees 1", "a look"]
    # The offline planner takes neither of its tools for one that does a task.
    with Session(Agent.from_folder(folder, trusted=True), ":memory:") as session:
        events = [each.content for each in session.send("Look at the lamps")]
    assert "recall" not in events


def test_a_wrong_memory_in_settings_is_named_with_its_line(write: Write) -> None:
    folder = write({**TEAM, "middle/settings.toml": "[memory]\nbudget = 9\nrecents = 2\n"})
    with raises_code("invalid_profile") as caught:
        Agent.from_folder(folder, trusted=True)
    assert "middle/settings.toml:2" in str(caught.value)
    assert "middle/settings.toml:3" in str(caught.value)
    assert "recent" in str(caught.value)
