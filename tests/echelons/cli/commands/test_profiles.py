"""Teams as folders on the command line: new, check, profiles, draw, run, and what is stored."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from echelons.testing import Call as ScriptedCall
from echelons.testing import OpenAIServer
from tests.echelons.cli.conftest import Started
from tests.fork_server import Ended

Call = Callable[..., Result]
Process = Callable[..., Ended]


@pytest.fixture
def office(echelons: Call, folder: Path) -> Path:
    """The folder that `echelons new` makes."""
    assert echelons("new", "office").exit_code == 0
    return folder / "office"


def test_a_new_team_is_whole_and_runs_offline(echelons: Call, office: Path) -> None:
    assert echelons("check", "office").stdout == "office: 3 agents, 2 tools, no faults\n"
    assert echelons("draw", "office").stdout.startswith("office: Answers questions about numbers")

    done = echelons("run", "office", "Add 3 and 4", "--trust", "--quiet")
    assert (done.exit_code, done.stdout) == (0, "numbers:\nThe sum is 7\n")
    asked = echelons("run", "./office/", "Which weekday is 2026-03-01?", "--trust", "--quiet")
    assert asked.stdout == "dates:\n2026-03-01 is a Sunday\n"


def test_a_new_team_replaces_nothing(echelons: Call, office: Path) -> None:
    before = {path: path.read_bytes() for path in office.rglob("*") if path.is_file()}

    done = echelons("new", "office")

    assert (done.exit_code, "something of that name already" in done.stderr) == (3, True)
    assert {path: path.read_bytes() for path in office.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["two words", "2nd", "run", "a.b"])
def test_a_new_team_has_the_name_of_an_agent(echelons: Call, folder: Path, name: str) -> None:
    done = echelons("new", name)

    assert (done.exit_code, "is no valid agent name" in done.stderr) == (3, True)
    assert not (folder / name).exists()


def test_a_team_with_the_name_of_a_shipped_one_is_run_by_its_path(
    echelons: Call, folder: Path
) -> None:
    made = echelons("new", "travel")

    assert "echelons run ./travel" in made.stderr
    assert echelons("draw", "./travel").stdout.startswith("travel: Answers questions")
    assert echelons("draw", "travel").stdout.startswith("head: Plans trips")


def test_check_prints_every_fault_with_file_and_line(echelons: Call, office: Path) -> None:
    (office / "settings.toml").write_text("modle = 1\n[limits]\nsteps = 0\n")
    (office / "dates" / "tools" / "calendar.py").write_text("def f(:\n")

    done = echelons("check", "office")

    assert done.exit_code == 6
    lines = done.stdout.splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "office/dates/tools/calendar.py:1",
        "office/settings.toml:1",
        "office/settings.toml:3",
    ]
    told = json.loads(echelons("check", "office", "--json").stdout)
    assert [each["error"] for each in told["faults"]] == [
        "SyntaxError",
        "UnknownKey",
        "InvalidSetting",
    ]
    refused = echelons("run", "office", "Add 3 and 4", "--trust")
    assert (refused.exit_code, "office/settings.toml" in refused.stderr) == (3, False)
    assert "settings.toml:1: there is no setting 'modle'" in refused.stderr


@pytest.mark.parametrize("command", ["check", "profiles", "draw"])
def test_a_folder_that_is_not_there_is_refused(echelons: Call, command: str) -> None:
    done = echelons(command, "./nowhere")

    assert (done.exit_code, "there is no such folder" in done.stderr) == (3, True)


def test_profiles_are_listed_with_what_they_are_made_of(echelons: Call, office: Path) -> None:
    (office / "default" / "writer").mkdir()
    (office / "default" / "writer" / "prompt.md").write_text("You write.")

    shown = echelons("profiles", "office").stdout

    assert "  default/prompt.md, dates/settings.toml, dates/tools/calendar.py\n" in shown
    assert "  tool find_weekday(day: str): Find the day of the week of a date.\n" in shown
    told = json.loads(echelons("profiles", "office", "--json").stdout)["profiles"]
    assert [(each["name"], each["spare"]) for each in told] == [
        ("office", False),
        ("dates", False),
        ("numbers", False),
        ("writer", True),
    ]
    assert len({each["hash"] for each in told}) == 4
    assert echelons("profiles").stdout == "office\n"


def test_a_folder_without_teams_says_how_to_make_one(echelons: Call, folder: Path) -> None:
    done = echelons("profiles")

    assert (done.exit_code, "echelons new TEAM" in done.stderr) == (3, True)


def test_nothing_but_a_trusted_run_executes_the_python_of_a_folder(
    echelons: Call, office: Path, process: Process
) -> None:
    tool = office / "dates" / "tools" / "calendar.py"
    tool.write_text("open('executed', 'w').close()\n" + tool.read_text())

    for words in (
        ["check", "office"],
        ["profiles", "office"],
        ["draw", "office"],
        ["capabilities", "office"],
        ["route", "office", "Which weekday is today?"],
    ):
        assert echelons(*words).exit_code == 0, words
    process(_ECHELONS_COMPLETE="complete_bash", COMP_WORDS="echelons run off", COMP_CWORD="2")
    refused = echelons("run", "office", "Which weekday is 2026-03-01?")
    assert (refused.exit_code, "has Python, which would be executed" in refused.stderr) == (3, True)
    assert not Path("executed").exists()

    assert echelons("run", "office", "Which weekday is 2026-03-01?", "--trust").exit_code == 0
    assert Path("executed").exists()


def test_the_shell_completes_folders_of_teams(office: Path, process: Process) -> None:
    done = process(_ECHELONS_COMPLETE="complete_bash", COMP_WORDS="echelons run of", COMP_CWORD="2")

    assert done.stdout.split() == ["office"]
    inner = process(
        _ECHELONS_COMPLETE="complete_bash", COMP_WORDS="echelons check ./of", COMP_CWORD="2"
    )
    assert inner.stdout.split() == ["./office"]


def test_another_process_resumes_a_folder_and_the_trust_is_not_stored(
    echelons: Call, office: Path, process: Process
) -> None:
    (office / "dates" / "tools" / "calendar.py").write_text(
        "from langgraph.types import interrupt\n\n\n"
        "def find_weekday(day: str) -> str:\n"
        '    """Find the day of the week of a date."""\n'
        "    return f\"{day} is a {interrupt('Which day is it?')}\"\n"
    )
    asked = echelons("run", "office", "Which weekday is 2026-03-01?", "--trust", "--thread", "days")
    assert asked.exit_code == 4, asked.stderr

    refused = process("answer", "Sunday", "--quiet")
    assert (refused.returncode, "trust the folder with --trust" in refused.stderr) == (3, True)
    with sqlite3.connect("trips.sqlite") as database:
        (stored,) = database.execute("SELECT metadata FROM checkpoints LIMIT 1").fetchone()
    assert json.loads(stored)["team"] == str(office)
    assert not [each for each in Path().glob("trips.sqlite*") if b"trust" in each.read_bytes()]

    Path("elsewhere").mkdir()
    moved = office.rename(Path("elsewhere", "office"))
    lost = process("answer", "Sunday", "--quiet", "--trust")
    assert (lost.returncode, "there is no such folder" in lost.stderr) == (3, True)

    answered = process("answer", "Sunday", "--quiet", "--trust", "--team", str(moved))
    assert answered.stdout == "dates:\n2026-03-01 is a Sunday\n", answered.stderr


def test_a_killed_run_of_a_folder_is_resumed_by_another_process(
    echelons: Call,
    office: Path,
    start: Callable[..., Started],
    process: Process,
    pipes: Path,
) -> None:
    (office / "dates" / "tools" / "calendar.py").write_text(
        "from pathlib import Path\n\nfrom echelons import effect\n\n\n"
        "@effect(reads_only=True)\n"
        "def find_weekday(day: str) -> str:\n"
        '    """Find the day of the week of a date."""\n'
        "    if Path('killed').exists():\n"
        '        return f"{day} is a Sunday"\n'
        "    Path('begun').write_text('x')\n"
        "    return Path('go').read_text()\n"
    )
    running = start("run", "office", "Which weekday is 2026-03-01?", "--trust", "--thread", "days")
    assert (pipes / "begun").read_text() == "x"
    running.kill()
    running.wait()
    (pipes / "killed").touch()

    assert process("resume", "--quiet").returncode == 3
    resumed = process("resume", "--trust", "--quiet")

    assert (resumed.returncode, resumed.stdout) == (0, "dates:\n2026-03-01 is a Sunday\n")


def test_the_profiles_of_a_folder_can_be_given_and_are_there_when_the_turn_goes_on(
    echelons: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = folder / "shop"
    asks = "from langgraph.types import interrupt\n\n\ndef which(name: str) -> str:\n"
    for name, text in {
        "prompt.md": "You lead.",
        "settings.toml": 'model = "openai:m"\n[permissions.spawn]\nprofiles = ["writer"]',
        "default/writer/prompt.md": "You write letters.",
        "default/writer/tools/which.py": f"{asks}    'Ask which.'\n    return interrupt(name)\n",
    }.items():
        (shop / name).parent.mkdir(parents=True, exist_ok=True)
        (shop / name).write_text(text)
    give = ScriptedCall("call_subordinate", {"profile": "writer", "message": "Write to Ann"})
    ask = ScriptedCall("which", {"name": "Ann"})
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with OpenAIServer([give, ask, "Dear Ann", "It is written."]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        refused = echelons("run", "shop", "Write to Ann", "--thread", "letters")
        asked = echelons("run", "shop", "Write to Ann", "--thread", "letters", "--trust")
        answered = echelons("answer", "The tall one", "--thread", "letters", "--trust")

    assert (refused.exit_code, "default/writer/tools/which.py" in refused.stderr) == (3, True)
    assert asked.exit_code == 4, asked.stderr
    assert (answered.exit_code, answered.stdout) == (0, "It is written.\n"), answered.stderr
    assert "You write letters." in str(server.requests[2].messages[0])
    assert "The tall one" in str(server.requests[2].messages[-1])
