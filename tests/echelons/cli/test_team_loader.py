"""Teams by name: what is found, and what is said about what is not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from echelons import Agent
from echelons.cli.team_loader import TeamSpec, find_team_source, list_shipped_teams, load_team
from echelons.offline.planner import OfflinePlanner
from echelons.testing import Call, OpenAIServer, delegate
from tests.error_codes import raises_code

Echelons = Callable[..., Result]


def refused(echelons: Echelons, *words: str) -> str:
    """Return what is said about a run that is refused, and check how."""
    done = echelons("run", words[0], "Hello", *words[1:])
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not Path("trips.sqlite").exists()
    return done.stderr


def test_the_shipped_teams_are_the_packages_of_the_teams_folder() -> None:
    assert {"research", "search", "travel"} <= set(list_shipped_teams())
    assert "studio" not in list_shipped_teams()


def test_an_unknown_team_is_refused_with_the_one_that_may_be_meant(echelons: Echelons) -> None:
    said = refused(echelons, "travle")

    assert "there is no team 'travle'; did you mean 'travel'? teams are " in said
    assert "research, search, travel" in said
    assert "module:agent" in said


def test_nothing_is_suggested_for_a_team_that_resembles_none() -> None:
    with raises_code("unknown_team") as caught:
        load_team(TeamSpec("xyz"))

    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    "team",
    ["trips:asking", "trips:made", "trips:unannotated", "trips:later", "trips:unannotated_later"],
)
def test_an_agent_or_a_function_that_returns_one_is_a_team(folder: Path, team: str) -> None:
    assert isinstance(load_team(TeamSpec(team)), Agent)


@pytest.mark.parametrize(
    ("team", "said"),
    [
        ("nowhere:head", "ModuleNotFoundError: No module named 'nowhere'"),
        (".trips:head", "TypeError"),
        (":head", "it lacks the module or the agent"),
        ("trips:", "it lacks the module or the agent"),
        ("trips:breaks", "RuntimeError: no such city"),
        ("trips:askin", "the module has no 'askin'; it has asking, "),
        ("trips:asking.nobody", "the module has no 'nobody'"),
        ("trips:number", "is of type int, no Agent"),
        ("trips:wants", "is a function with parameters (missing a required argument: 'city')"),
        ("trips:breaks_later", "it cannot be loaded: RuntimeError: no such city"),
        ("trips:exits_later", "it cannot be loaded: SystemExit: done"),
        ("trips:cancelled", "it cannot be loaded: CancelledError: no server answers"),
        ("trips:number_later", "is of type int, no Agent"),
        (
            "trips:wants_later",
            "is a function with parameters (missing a required argument: 'city')",
        ),
        ("trips:yields_later", "is of type async_generator, no Agent"),
        ("trips:Agent", "is of type type, no Agent"),
    ],
)
def test_what_is_wrong_with_an_own_team_is_said(echelons: Echelons, team: str, said: str) -> None:
    assert said in refused(echelons, team)


def test_an_async_function_is_awaited_in_the_loop_of_the_run_and_of_the_next(
    echelons: Echelons, folder: Path
) -> None:
    first = echelons("run", "trips:bound", "Call", "--thread", "line")
    called = (folder / "line").read_text()
    (folder / "line").unlink()
    second = echelons("run", "trips:bound", "Call again", "--thread", "line")

    assert (first.exit_code, called) == (0, "up")
    assert (second.exit_code, (folder / "line").read_text()) == (0, "up")


def test_an_async_function_makes_the_team_of_a_turn_that_is_answered(echelons: Echelons) -> None:
    asked = echelons("run", "trips:later", "Book", "--thread", "rome")
    answered = echelons("answer", "yes", "--thread", "rome")

    assert (asked.exit_code, answered.exit_code) == (4, 0)
    assert "Booked." in answered.stdout


def test_an_async_function_makes_a_team_that_is_drawn_and_routed(echelons: Echelons) -> None:
    assert "clerk" in echelons("draw", "trips:later").stdout
    assert "clerk" in echelons("capabilities", "trips:later").stdout
    assert echelons("route", "trips:later", "book tables").exit_code == 0


def test_a_module_that_does_not_compile_or_exits_is_refused(
    echelons: Echelons, folder: Path
) -> None:
    (folder / "typo.py").write_text("def head(:\n")
    (folder / "script.py").write_text("raise SystemExit('done')\n")

    assert "SyntaxError" in refused(echelons, "typo:head")
    assert "SystemExit: done" in refused(echelons, "script:head")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import asyncio\nraise asyncio.CancelledError('late')", "CancelledError: late"),
        ("raise BaseException('skipped')", "BaseException: skipped"),
        ("def head(): raise GeneratorExit", "GeneratorExit"),
        ("def __getattr__(name): raise RuntimeError(name)", "RuntimeError: head"),
        ("def __getattr__(name): raise SystemExit(name)", "SystemExit: head"),
        (
            "class Liar:\n __class__ = property(lambda self: 1 / 0)\nhead = Liar()",
            "ZeroDivisionError: division by zero",
        ),
    ],
)
def test_whatever_the_code_of_a_team_raises_is_said(
    echelons: Echelons, folder: Path, source: str, said: str
) -> None:
    (folder / "own.py").write_text(source)
    try:
        assert f"it cannot be loaded: {said}" in refused(echelons, "own:head")
    finally:
        sys.modules.pop("own", None)


def test_an_error_of_the_tree_itself_is_said_as_it_is(echelons: Echelons, folder: Path) -> None:
    (folder / "twice.py").write_text(
        "from echelons import Agent\nhead = Agent('head', subordinates=[Agent('head')])\n"
    )

    assert "the name 'head' stands more than once" in refused(echelons, "twice:head")


def test_documents_are_wanted_by_the_team_that_answers_from_them(
    echelons: Echelons, folder: Path
) -> None:
    assert "name their folder with --docs FOLDER" in refused(echelons, "research")
    assert "there is no folder" in refused(echelons, "research", "--docs", "nowhere")
    assert "is a file, not a folder" in refused(echelons, "research", "--docs", "trips.py")


@pytest.mark.parametrize("team", ["travel", "trips:plain"])
def test_documents_are_refused_by_a_team_that_takes_none(echelons: Echelons, team: str) -> None:
    assert "takes no documents, and --docs names" in refused(echelons, team, "--docs", ".")


def test_what_could_not_be_read_of_the_documents_is_said(echelons: Echelons, folder: Path) -> None:
    (folder / "notes").mkdir()
    (folder / "notes" / "tides.md").write_text("# Tides\n\nThe moon makes the tides.\n")
    (folder / "notes" / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")

    said = echelons("run", "research", "What makes tides?", "--docs", "notes").stderr

    assert "notes: 1 read, 1 skipped; binary: 1 (photo.png)\n" in said


def test_a_terminal_shows_how_far_the_documents_are_read(
    terminal: Callable[..., tuple[int, str]], echelons: Callable[..., Any], folder: Path
) -> None:
    (folder / "notes").mkdir()
    for number in range(3):
        (folder / "notes" / f"{number}.md").write_text("# Tides\n\nThe moon makes the tides.\n")
    asked = ("run", "research", "What makes tides?", "--docs", "notes")

    _, shown = terminal(*asked)
    _, quiet = terminal(*asked, "--quiet")
    _, drawn = terminal("draw", "research", "--docs", "notes")
    logged = echelons(*asked)

    for each in ("Reading files", "Counting words", "Choosing words", "3/3"):
        assert each in shown
        assert each in drawn
        assert each not in quiet + logged.stderr
    assert shown.index("Choosing words") < shown.index("3 read, 0 skipped")


def test_documents_are_read_once_for_the_team_and_what_is_said_of_them(tmp_path: Path) -> None:
    document = tmp_path / "tides.md"
    document.write_text("The moon makes tides.", encoding="utf-8")
    made_from = find_team_source(TeamSpec("research", tmp_path))
    load_team(TeamSpec("research", tmp_path), made_from)
    document.unlink()

    assert "1 read, 0 skipped" in made_from.format_remarks()


def test_offline_planner_by_name_is_that_of_the_team(tmp_path: Path) -> None:
    (tmp_path / "tides.md").write_text("The moon makes tides.", encoding="utf-8")

    planner = load_team(TeamSpec("research", tmp_path, "offline")).model

    assert isinstance(planner, OfflinePlanner)
    assert planner.sharing is not OfflinePlanner().sharing


def test_a_model_without_its_key_is_refused_before_anything_is_made(echelons: Echelons) -> None:
    said = refused(echelons, "travel", "--model", "openai:gpt-5-mini")

    assert "needs a key, and OPENAI_API_KEY is not set" in said


def test_an_unknown_model_is_refused(echelons: Echelons) -> None:
    assert "unknown model 'gpt'" in refused(echelons, "travel", "--model", "gpt")


@pytest.mark.parametrize("team", ["travel", "trips:later"])
def test_a_model_whose_package_is_missing_is_refused_before_anything_is_made(
    echelons: Echelons, team: str
) -> None:
    said = refused(echelons, team, "--model", "mistralai:mistral-large-latest")

    assert "model 'mistralai:mistral-large-latest' needs the package 'langchain-mistralai'" in said
    assert "pip install langchain-mistralai" in said


@pytest.mark.usefixtures("upstage")
def test_a_turn_that_waits_goes_on_with_the_model_of_a_provider_that_it_began_with(
    echelons: Echelons, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [delegate("clerk", "book"), Call("confirm", {"what": "Book?"}), "Booked.", "All done."]
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with OpenAIServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        asked = echelons(
            "run", "trips:asking", "Book", "--thread", "rome", "--model", "upstage:solar-pro"
        )
        answered = echelons("answer", "yes", "--thread", "rome")

    assert (asked.exit_code, answered.exit_code) == (4, 0)
    assert "All done." in answered.stdout
    assert {each.model for each in server.requests} == {"solar-pro"}


def test_a_thread_notes_what_its_team_is_made_from() -> None:
    name = TeamSpec("research", Path("/notes"), "openai:gpt-5-mini")

    noted = TeamSpec.from_metadata(name.to_metadata())

    assert noted == TeamSpec("research", Path("/notes"), "openai:gpt-5-mini", trusted=False)
    assert TeamSpec.from_metadata({"step": 3, "team": None}) is None


def test_a_databases_word_calls_only_functions_that_say_what_they_return(folder: Path) -> None:
    assert isinstance(load_team(TeamSpec("trips:made", trusted=False)), Agent)
    assert isinstance(load_team(TeamSpec("trips:later", trusted=False)), Agent)
    with raises_code("invalid_team", match="only a database names"):
        load_team(TeamSpec("trips:unannotated_later", trusted=False))
    with raises_code("invalid_team", match="only a database names"):
        load_team(TeamSpec("trips:unannotated", trusted=False))
    with raises_code("invalid_team", match="only a database names"):
        load_team(TeamSpec("os:abort", trusted=False))
