"""What holds for every command: help, errors, encodings, completion, pipes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import Result

from echelons.cli.app import MODULES
from echelons.cli.command import ExitCode
from tests.echelons.cli.conftest import MAIN
from tests.fork_server import Ended, ForkServer

Call = Callable[..., Result]
Process = Callable[..., Ended]
COMMANDS = [
    "run",
    "inbox",
    "answer",
    "resume",
    "threads",
    "trace",
    "show",
    "draw",
    "capabilities",
    "route",
]
COMMANDS += ["tree", "changes", "merge", "discard"]
COMMANDS += ["attach", "prune", "delete", "doctor", "backup", "repair"]
HEAVY = {"langgraph", "langchain", "langchain_core", "langchain_openai", "openai"}


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_loads_neither_langgraph_nor_langchain(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from echelons.cli.app import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )

    loaded = {module.partition(".")[0] for module in done.stderr.split()}
    assert done.stdout
    assert not loaded & HEAVY


def test_a_command_in_an_error_can_be_copied_from_a_narrow_terminal(
    echelons: Call, terminal: Callable[..., tuple[int, str]]
) -> None:
    echelons("run", "trips:asking", "A table")
    asked = json.loads(echelons("inbox", "--json").stdout)["id"]
    code, shown = terminal("answer", asked, columns=40)

    assert code == 2
    assert f"Error: Invalid value: give the answer: echelons answer {asked} VALUE\r\n" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_of_a_command_are_not_broken_in_80_columns(
    echelons: Call, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    examples = getattr(import_module(MODULES[command]), command).examples
    monkeypatch.setenv("COLUMNS", "80")
    shown = echelons(command, "--help").stdout

    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()]
    assert max(map(len, shown.splitlines())) <= 80
    assert {f"echelons {each}" for each in examples} <= set(lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_examples(echelons: Call, command: str) -> None:
    done = echelons(command, "--help")

    assert done.exit_code == 0
    assert "Examples" in done.stdout
    assert f"echelons {command}" in done.stdout.split("Examples")[1]


def test_the_help_says_what_every_exit_code_means(echelons: Call) -> None:
    shown = " ".join(echelons("--help").stdout.split())

    for code in ExitCode:
        assert f"{code:d} {code.meaning}" in shown


def test_the_version_is_the_packages(echelons: Call) -> None:
    assert echelons("--version").stdout == f"echelons {version('echelons')}\n"


@pytest.mark.parametrize(
    "words", [["fly"], ["run", "travel"], ["threads", "--nonsense"], ["draw", ""]]
)
def test_a_wrong_command_line_has_the_usual_exit_code(echelons: Call, words: list[str]) -> None:
    assert echelons(*words).exit_code == 2


def test_a_name_that_is_no_text_is_refused(process: Process) -> None:
    word = os.fsdecode(b"caf\xe9")

    for words in (["run", "trips:plain", word], ["run", "trips:plain", "x", "--thread", word]):
        done = process(*words)
        assert done.returncode == 2
        assert "not valid text" in done.stderr


def test_a_program_gets_errors_as_json_on_the_standard_error(echelons: Call) -> None:
    done = echelons("run", "travle", "Hello", "--json")

    said = json.loads(done.stderr)
    assert (done.exit_code, done.stdout) == (3, "")
    assert (said["kind"], said["error"], said["exit_code"]) == ("error", "UnknownTeam", 3)
    assert said["team"] == "travle"
    assert "travel" in said["known"]


@pytest.fixture
def broken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line that meets an error which nobody foresaw."""

    def fails(*_: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("echelons.cli.database.open_database", fails)


@pytest.mark.usefixtures("broken")
def test_an_unexpected_error_is_one_line_and_says_how_to_see_more(echelons: Call) -> None:
    done = echelons("threads")

    assert done.exit_code == 1
    assert done.stderr == ("error: ZeroDivisionError: by zero (unexpected; --debug shows where)\n")


@pytest.mark.usefixtures("broken")
def test_debug_shows_where_an_error_comes_from(
    echelons: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Traceback" in echelons("threads", "--debug").stderr
    monkeypatch.setenv("ECHELONS_DEBUG", "1")
    assert "Traceback" in echelons("threads").stderr


def test_a_named_error_has_its_trace_in_debug_only(echelons: Call) -> None:
    assert "Traceback" in echelons("run", "travle", "Hello", "--debug").stderr
    assert "Traceback" not in echelons("run", "travle", "Hello").stderr


def test_a_subordinate_that_fails_shows_no_trace_but_its_reason(
    process: Process, folder: Path
) -> None:
    (folder / "cracks.py").write_text(
        "from echelons import Agent\n"
        "from echelons.testing import ScriptedModel, delegate\n"
        "def cracks(message):\n    raise ValueError('cracked')\n"
        "model = ScriptedModel([delegate('cracks', 'go'), 'It cracked.'])\n"
        "head = Agent('head', model=model, subordinates=[cracks])\n"
    )
    done = process("run", "cracks:head", "Go")

    assert (done.returncode, done.stdout) == (0, "It cracked.\n")
    assert "is unable: ValueError: cracked" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in process("run", "cracks:head", "Go", "--debug").stderr


def test_a_terminal_without_unicode_gets_plain_signs(interpreter: Process) -> None:
    done = interpreter("draw", "trips:asking", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert done.stdout == "head: Plans trips\n`-- clerk: Books tables\n"

    task = "Ångström → Zürich"
    asked = interpreter("run", "trips:plain", task, PYTHONUTF8="1", PYTHONIOENCODING="ascii")
    assert asked.returncode == 0
    assert "begins: Angstrom ? Zurich" in asked.stderr


def test_a_reader_that_goes_away_is_no_error(
    echelons: Call, folder: Path, fork_server: ForkServer
) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "rome")
    reading, writing = os.pipe()
    os.close(reading)
    process = fork_server.start(*MAIN, "threads", cwd=folder, stdout=writing)
    os.close(writing)

    _, told = process.communicate()
    assert (process.returncode, told) == (141, "")


def completed(process: Process, *words: str) -> list[str]:
    """Return what bash offers for the last of some words."""
    done = process(
        _ECHELONS_COMPLETE="complete_bash",
        COMP_WORDS=" ".join(["echelons", *words]),
        COMP_CWORD=str(len(words)),
    )
    return done.stdout.split()


def test_the_shell_completes_teams_and_threads(echelons: Call, process: Process) -> None:
    echelons("run", "trips:plain", "Hello", "--thread", "rome")
    echelons("run", "trips:plain", "Hello", "--thread", "oslo")

    assert completed(process, "run", "tr") == ["travel"]
    assert completed(process, "trace", "--thread", "ro") == ["rome"]
    assert completed(process, "show", "") == ["oslo", "rome"]
    assert completed(process, "takeover", "ro") == ["rome"]
    assert completed(process, "dismiss", "--thread", "rome", "he") == ["head"]


def test_completion_without_a_database_offers_nothing_and_makes_none(
    process: Process, folder: Path
) -> None:
    assert completed(process, "trace", "--thread", "ro") == []
    assert not (folder / "trips.sqlite").exists()


def test_the_manual_has_every_command_and_exit_code() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")

    for command in COMMANDS:
        assert f"| `{command}" in manual
    for code in ExitCode:
        assert f"| {code:d} | " in manual
