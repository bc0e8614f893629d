"""Collects the names, keys and texts that code, databases and models depend on.

``python -m tests.what_stays`` writes them down anew, after a change that is meant.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
RECORD = REPOSITORY / "tests" / "fixtures" / "what_stays.json"
PUBLIC = (
    "echelons",
    "echelons.memory",
    "echelons.middleware",
    "echelons.monitors",
    "echelons.testing",
    "echelons.testing.crash",
    "echelons.testing.openai_server",
    "echelons.tools",
    "echelons.workspace_tools",
)
"""The modules all of whose names users may import."""
PACKAGES = ("echelons", "graphs", "nodes", "checkpoints")
FOR_PEOPLE = ("cli", "errors", "language", "offline", "profiles", "teams", "testing")
"""Packages whose texts only people and programs read."""
WORDS = 3
"""Words that a literal has at least to be taken for a text."""
_SQL = re.compile(r"\s*(SELECT|CREATE|INSERT|UPDATE|DELETE|DROP|ALTER|WITH|PRAGMA)\b")


def list_imported_names() -> dict[str, list[str]]:
    """Return the names that pages, notebooks and public modules offer, by their modules."""
    names: dict[str, set[str]] = {}
    for module in PUBLIC:
        names[module] = {*import_module(module).__all__}
    for code in _iterate_examples():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("echelons."):
                names.setdefault(str(node.module), set()).update(one.name for one in node.names)
    return {module: sorted(found) for module, found in sorted(names.items())}


def _iterate_examples() -> Iterator[str]:
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    for page in pages:
        yield from re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    for notebook in sorted((REPOSITORY / "notebooks").glob("*.ipynb")):
        for cell in json.loads(notebook.read_text())["cells"]:
            if cell["cell_type"] == "code":
                yield "".join(line for line in cell["source"] if line[:1] not in "%!")


def list_keys() -> list[str]:
    """Return the values of the constants that are called keys, but for those of configs."""
    return sorted(
        {
            node.value.value
            for tree in iterate_modules()
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            and _get_target(node).endswith("_KEY")
            and not node.value.value.startswith("__")
        }
    )


def list_texts() -> list[str]:
    """Return the literals that a model may read or a database may hold.

    Those of errors, of docstrings and of SQL are left out; what is filled in is `{}`.
    """
    return sorted(
        {
            text
            for tree in iterate_modules(FOR_PEOPLE)
            for text in _iterate_literals(tree)
            if len(re.findall(r"[a-z]{2,}", text)) >= WORDS and not _SQL.match(text)
        }
    )


def list_all_literals() -> set[str]:
    """Return all literals of the source."""
    return {text for tree in iterate_modules() for text in _iterate_literals(tree)}


def iterate_modules(left_out: tuple[str, ...] = ()) -> Iterator[ast.Module]:
    """Yield the modules of the source, but for some packages."""
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            place = path.relative_to(REPOSITORY)
            # The packages are linked into each other.
            if place.parts[1] not in (*PACKAGES, *left_out):
                yield ast.parse(path.read_text(encoding="utf-8"))


def _iterate_literals(tree: ast.AST) -> Iterator[str]:
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        elif isinstance(node, ast.Raise):
            skipped.update(ast.walk(node))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )


def _get_target(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""


def collect() -> dict[str, Any]:
    """Return all that stays."""
    return {"names": list_imported_names(), "keys": list_keys(), "texts": list_texts()}


if __name__ == "__main__":
    RECORD.write_text(f"{json.dumps(collect(), indent=1, ensure_ascii=False)}\n", encoding="utf-8")
