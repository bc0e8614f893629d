"""Which tests concern a feature: those that name it, and those that use what names it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from echelons.tree import names
from tests.gates.test_scattered_features import OTHER_MEANINGS, SYNONYMS, contains

UNNAMED = {
    # The tools of a level are counted, or it has a node for them: one of them asks questions.
    "questions": {
        "test_a_level_has_the_nodes_that_it_can_use",
        "test_long_description_and_many_tools_are_refused_for_openai",
        "test_built_in_tools_count",
    }
}
"""Tests that concern a feature and do not name it."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Module:
    """A module of tests or of their helpers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    @cached_property
    def statements(self) -> list[tuple[set[str], ast.stmt]]:
        """Its statements but for imports, with the names that each binds."""
        statements: list[tuple[set[str], ast.stmt]] = []
        for node in self.tree.body:
            match node:
                case ast.Import() | ast.ImportFrom():
                    continue
                case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                    statements.append(({name}, node))
                case _:
                    bound = (name for name in ast.walk(node) if isinstance(name, ast.Name))
                    names = {name.id for name in bound if isinstance(name.ctx, ast.Store)}
                    statements.append((names, node))
        return statements

    def list_imports(self, folder: Path) -> Iterator[tuple[Path, str, str]]:
        """Yield what is imported from other modules in `tests`: file, name there, name here."""
        for node in ast.walk(self.tree):
            match node:
                case ast.ImportFrom(module=str(module)) if module.startswith("tests."):
                    path = folder / f"{module.replace('.', '/')}.py"
                    for alias in node.names:
                        yield path, alias.name, alias.asname or alias.name


def list_tools(feature: Path) -> list[str]:
    """Return the names of the built-in tools that a feature's folder has."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(feature.glob("*.py"))]
    constants = re.findall(r"^    name, arguments = (\w+), ", "\n".join(texts), re.MULTILINE)
    return [getattr(names, constant) for constant in constants]


class FeatureTests:
    """The tests in a project's copy that concern one feature."""

    def __init__(self, folder: Path, feature: str) -> None:
        self._folder = folder
        names = [*SYNONYMS[feature].split(), *list_tools(folder / "echelons/features" / feature)]
        self._words = [tuple(name.split("_")) for name in names]
        self._others = [tuple(word.split("_")) for word in OTHER_MEANINGS.get(feature, "").split()]
        # In a text, memory is where a saver keeps its threads.
        self._words_of_texts = [words for words in self._words if words != ("memory",)]
        self._unnamed = UNNAMED.get(feature, set())
        self._found: dict[Path, set[str]] = {}

    def find_concerned(self, path: Path) -> set[str]:
        """Return the names that concern the feature of a module, of its imports and fixtures."""
        if path in self._found:
            return self._found[path]
        self._found[path] = names = set[str]()
        if not path.is_file():
            return names
        module = Module(path)
        for file, name, name_here in module.list_imports(self._folder):
            if name in self.find_concerned(file):
                names.add(name_here)
        # A fixture of a folder is used by its name.
        for parent in path.parents:
            if parent.is_relative_to(self._folder) and (parent / "conftest.py") != path:
                names |= self.find_concerned(parent / "conftest.py")
        size = -1
        while size != len(names):
            size = len(names)
            for bound, node in module.statements:
                if not bound <= names and self._concerns(node, names):
                    names |= bound
        return names

    def remove_from(self, path: Path) -> tuple[int, int]:
        """Remove the tests that concern the feature; return how many, and how many there were."""
        concerned, module = self.find_concerned(path), Module(path)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        removed = total = 0
        for _, node in module.statements:
            if not isinstance(node, Definition) or not node.name.lower().startswith("test"):
                continue
            total += 1
            if node.name in concerned | self._unnamed:
                removed += 1
                first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                lines[first - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - first + 1)
        path.write_text("".join(lines), encoding="utf-8")
        return removed, total

    def _concerns(self, node: ast.AST, names: set[str]) -> bool:
        """Return whether code names the feature, or uses one of some names."""
        fields = ("id", "attr", "arg", "name", "value")
        for part in ast.walk(node):
            for field in fields:
                text = getattr(part, field, None)
                if not isinstance(text, str):
                    continue
                if text in names and field != "value":
                    return True
                words = self._words_of_texts if field == "value" else self._words
                if contains(text, words) and not contains(text, self._others):
                    return True
        return False
