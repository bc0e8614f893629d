"""What the pages say of the library is there, and what is there they say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import typer.main

import echelons
import echelons.testing
from echelons.cli.app import app
from echelons.cli.command import ExitCode

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROSE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
LINKED = ("graphs", "nodes", "checkpoints")
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    files = [target for target in targets if "://" not in target]

    assert [each for each in files if not (page.parent / each).exists()] == []


def test_the_readme_leads_to_every_page() -> None:
    linked = (ROOT / "README.md").read_text(encoding="utf-8")

    pages = [name(page) for page in PAGES if page.parent == ROOT / "docs"]
    assert [each for each in pages if f"({each})" not in linked] == []


def modules() -> set[str]:
    """Return the paths of all modules, without the link that leads to them."""
    folders = [ROOT / "echelons" / each for each in ("", *LINKED)]
    found = {path.relative_to(ROOT / "echelons") for each in folders for path in each.rglob("*.py")}
    return {str(each if each.parts[0] in LINKED else "echelons" / each) for each in found}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(
        r"`((?:echelons|graphs|nodes|checkpoints)/[\w/]+\.py)`", page.read_text(encoding="utf-8")
    )

    assert set(named) - modules() == set()


def test_the_page_of_the_architecture_lists_every_folder_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

    # A sample team, or a fake, is no row of its own.
    folders = {
        re.sub(r"^(echelons/(teams|testing))/.*", r"\1", str(Path(each).parent))
        for each in modules()
    }
    assert set(re.findall(r"^\| `([a-z_/]+)/` ", page, re.MULTILINE)) == folders


def test_the_page_of_the_architecture_has_the_layers_that_are_checked() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    contracts = project["tool"]["importlinter"]["contracts"]
    rooms = [each for each in contracts if "containers" in each and each["type"] == "layers"]
    assert [each["containers"] for each in rooms] == [["echelons.checkpoints"], ["echelons"]]
    for each in rooms:
        assert "\n".join(each["layers"]) in page


def test_the_terms_of_the_glossary_stand_in_order() -> None:
    rows = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("| --- |")[1]

    terms = re.findall(r"^\| ([^|]+) \|", rows, re.MULTILINE)
    assert terms == sorted(terms, key=str.lower)


@pytest.mark.parametrize("public", [*echelons.__all__, *echelons.testing.__all__])
def test_every_public_name_is_on_a_page(public: str) -> None:
    assert re.search(rf"\b{public}\b", PROSE)


def test_the_page_of_the_command_line_lists_every_command_and_no_other() -> None:
    table = CLI.split("## Commands")[1].split("\n\n")[1]

    listed = re.findall(r"^\| `([a-z-]+)", table, re.MULTILINE)
    assert sorted(listed) == sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_the_page_of_the_command_line_lists_every_exit_code() -> None:
    table = CLI.split("## Exit codes")[1]

    listed = {int(code) for code in re.findall(r"^\| (\d+) ", table, re.MULTILINE)}
    assert listed >= {int(code) for code in ExitCode}


def test_a_command_that_a_page_shows_is_one() -> None:
    shown = set(re.findall(r"^(?:\$ )?echelons ([a-z][a-z-]*)", PROSE, re.MULTILINE))
    shown |= set(re.findall(r"`echelons ([a-z][a-z-]*)", PROSE))

    assert shown - set(typer.main.get_command(app).commands) == set()  # type: ignore[attr-defined]
