"""What may be imported under which name, and what an import may cost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
LINKED = ("graphs", "nodes", "checkpoints")
SOURCES = sorted(
    source
    for folder in ("echelons", *LINKED)
    for source in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in source.parts
)


def loaded_by(statement: str) -> set[str]:
    """Return the names of all modules that a new interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a source distribution has no links")
@pytest.mark.parametrize("name", LINKED)
def test_a_linked_folder_is_a_relative_link_to_the_folder_of_its_name(name: str) -> None:
    assert (ROOT / "echelons" / name).readlink() == Path("..", name)


def test_every_symbolic_link_of_the_repository_is_relative_and_stays_inside() -> None:
    skipped = {".git", ".venv", ".peers", "node_modules"}
    for folder, folders, files in os.walk(ROOT):
        own = (name for name in folders if name not in skipped)
        folders[:] = [name for name in own if not name.startswith(".compat-")]
        for link in (Path(folder, entry) for entry in (*folders, *files)):
            if link.is_symlink():
                assert not link.readlink().is_absolute(), link
                assert link.resolve().is_relative_to(ROOT.resolve()), link


def test_the_import_contracts_see_every_module_behind_a_link() -> None:
    graph = grimp.build_graph("echelons", cache_dir=None)
    files = {path for name in LINKED for path in (ROOT / name).rglob("*.py")}
    modules = {
        ".".join(("echelons", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for path in files
    }

    assert modules <= graph.modules


PRIVATE = re.compile(
    r"from lang(graph|chain_core)[\w.]*\._"
    r"|from lang(graph|chain_core)[\w.]* import [^\n]*\b_[A-Za-z]"
    r"|__pregel_|branch:to:|var_child_runnable_config|_last_v6_timestamp"
)
"""Private names of LangGraph and LangChain, as an import or as a text."""


def test_models_are_called_in_one_module() -> None:
    calls = re.compile(r"self\._?model\.a?(invoke|batch|stream|generate)\(")
    door = [each for each in SOURCES if calls.search(each.read_text(encoding="utf-8"))]
    assert [each.name for each in door] == ["bound_model.py"]


def test_private_parts_of_langgraph_are_named_in_one_module() -> None:
    for source in SOURCES:
        if source.name != "langgraph_internals.py":
            assert not PRIVATE.search(source.read_text(encoding="utf-8")), source


def test_importing_the_library_loads_neither_langgraph_nor_langchain() -> None:
    loaded = {module.partition(".")[0] for module in loaded_by("import echelons")}

    assert not loaded & {"langgraph", "langchain", "langchain_core", "langchain_openai", "openai"}
    assert not loaded & {"mcp", "langchain_mcp_adapters"}
