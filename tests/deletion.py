"""Removes one feature after the other from a copy of the project, and says what breaks.

    python -m tests.deletion [FEATURE...]

A feature can be removed if no other module imports from its folder, not even in a function or for
types, all that remains of `echelons` is imported without an error and has sound types, and a tree
of three levels answers. `tests/test_deletion.py` runs the tests that remain, too, for
`make proof PART=deletion`.

A feature that cannot be removed stands in `CORE`, and in `docs/architecture.md`; one that stands
there although it can be removed is a failure, too.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parent.parent

FEATURES: Final = (
    "mail",
    "memory",
    "monitors",
    "questions",
    "approvals",
    "budget",
    "spawning",
    "dismissal",
    "workspace",
    "notes",
    "aliases",
    "middleware",
)

# The modules through which users import what a feature has, beside the names of `echelons`.
PUBLIC: Final = {
    "memory": ["memory"],
    "monitors": ["monitors"],
    "middleware": ["middleware"],
    "workspace": ["workspace_tools"],
    "notes": ["workspace_tools"],
}

# Why a feature cannot be removed: what still imports it.
CORE: Final = {
    "workspace": "`Session` and the team server open it; notes share its tools",
    "middleware": "the level graph is built from its nodes and wraps",
}

IMPORT_ALL: Final = """
import importlib, pkgutil, sys, traceback
import echelons
broken = 0
names = [module.name for module in pkgutil.walk_packages(echelons.__path__, "echelons.",
                                                        onerror=lambda name: None)]
for name in names:
    if name.endswith("__main__"):
        continue
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("echelons"):
            continue  # An optional dependency that is not installed.
        broken += 1
        frames = traceback.extract_tb(error.__traceback__)
        place = next((f for f in reversed(frames) if "importlib" not in f.filename), None)
        print(f"{place.filename}:{place.lineno}: {error}" if place else f"{name}: {error}")
    except ImportError as error:
        broken += 1
        print(f"{name}: {error}")
if not broken:
    from echelons import Agent, Session
    from echelons.testing import ScriptedModel, delegate

    model = ScriptedModel(
        {"head": [delegate("guide", "go"), "done"], "guide": [delegate("scout", "look"), "seen"],
         "scout": ["a lake"]}
    )
    guide = Agent("guide", "Leads", subordinates=[Agent("scout", "Looks")])
    with Session(Agent("head", "Plans", model=model, subordinates=[guide]), ":memory:") as session:
        text = str(session.send("Where to?").result())
    if text != "done":
        broken += 1
        print(f"a tree answers {text!r}")
sys.exit(1 if broken else 0)
"""


def copy_project(folder: Path) -> None:
    """Copy the files of the working tree, with its symbolic links."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        source, copy = PROJECT / name, folder / name
        if source.is_symlink() or source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def remove_feature(folder: Path, feature: str) -> None:
    """Remove a feature's folder, entry, field, public modules and tests from a copy."""
    shutil.rmtree(folder / "echelons/features" / feature)
    shutil.rmtree(folder / "tests/echelons/features" / feature, ignore_errors=True)
    for module in PUBLIC.get(feature, []):
        (folder / "echelons" / f"{module}.py").unlink()
    remove_entry(folder / "echelons/features/registry.py", feature)
    remove_field(folder / "echelons/agent.py", feature)


def remove_entry(registry: Path, feature: str) -> None:
    """Remove a feature's entry from the registry, with the comment above it."""
    text = registry.read_text()
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name("Entry"), args=[ast.Constant(name), *_]) if name == feature:
                first = node.lineno - 1
                while lines[first - 1].lstrip().startswith("#"):
                    first -= 1
                del lines[first : node.end_lineno]
                registry.write_text("".join(lines))
                return


def remove_field(agent: Path, feature: str) -> None:
    """Remove the field of `Agent` that a feature has, its parameter, and what it is imported by."""
    text = agent.read_text()
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.AnnAssign(target=ast.Name(name)) | ast.arg(name) if name == feature:
                pass
            case ast.ImportFrom(module=str(module)) if f".{feature}." in module:
                pass
            case _:
                continue
        for place in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[place] = ""
    agent.write_text("".join(lines))


def list_imports(folder: Path, feature: str) -> list[str]:
    """Return where the remaining modules import from a feature's folder, in functions too."""
    home = f"echelons.features.{feature}"
    places = []
    for top in ("echelons", "graphs", "nodes", "checkpoints"):
        for path in sorted((folder / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.ImportFrom(module=str(module)):
                        names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
                    case ast.Import():
                        names = [alias.name for alias in node.names]
                    case _:
                        continue
                if any(f"{name}.".startswith(f"{home}.") for name in names):
                    places.append(f"{path.relative_to(folder)}:{node.lineno} imports from it")
    return places


def share_type_cache(folder: Path) -> None:
    """Give a copy what mypy knows of the project, whose files it has under the same names."""
    with contextlib.suppress(OSError):
        shutil.copytree(PROJECT / ".mypy_cache", folder / ".mypy_cache", copy_function=link)


def link(source: str, copy: str) -> None:
    """Link a file, or copy it to another file system; mypy replaces files and changes none."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copy2(source, copy)


def list_breaks(feature: str) -> list[str]:
    """Return what breaks when a feature is removed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_project(folder)
        remove_feature(folder, feature)
        if places := list_imports(folder, feature):
            return places
        share_type_cache(folder)
        for command in (["-c", IMPORT_ALL], ["-m", "mypy", "-p", "echelons"]):
            if lines := run_python(folder, command):
                return lines
        return []


def run_python(folder: Path, arguments: Sequence[str]) -> list[str]:
    """Run Python in a copy of the project, and return what it prints if it fails."""
    run = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (run.stdout + run.stderr).replace(f"{folder}/", "").strip().splitlines()
    return sorted(set(lines)) if run.returncode else []


def main() -> int:
    """Remove the features that the command line names, or all; return how many surprise."""
    parser = argparse.ArgumentParser(prog="python -m tests.deletion")
    parser.add_argument("features", nargs="*", metavar="FEATURE")
    options = parser.parse_args()
    if unknown := sorted(set(options.features) - set(FEATURES)):
        parser.error(f"no such feature: {', '.join(unknown)}")
    surprises, features = 0, options.features or FEATURES
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(list_breaks, features)
    for feature, breaks in zip(features, found, strict=True):
        state = "cannot be removed" if breaks else "can be removed"
        listed = f" (core: {CORE[feature]})" if feature in CORE else ""
        surprise = bool(breaks) != (feature in CORE)
        surprises += surprise
        print(f"{feature}: {state}{listed}{' -- UNEXPECTED' if surprise else ''}", flush=True)
        for line in breaks if surprise else []:
            print(f"    {line}")
    return surprises


if __name__ == "__main__":
    sys.exit(min(main(), 1))
