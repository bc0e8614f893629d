"""The modules of the package, parsed once, and the words of which their names consist."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Source:
    """One module; its name is its path in the package, such as `nodes/reason.py`."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.text = path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def names(self) -> set[str]:
        """Every name in the code, parts of imported paths included."""
        fields = ("id", "attr", "arg", "name", "asname", "module")
        values = (getattr(node, field, None) for node in self.nodes for field in fields)
        return {name for value in values if isinstance(value, str) for name in value.split(".")}

    @property
    def prose(self) -> Iterator[str]:
        """Docstrings and comments."""
        for node in self.nodes:
            if isinstance(node, ast.Module | ast.ClassDef | Function):
                yield ast.get_docstring(node) or ""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string.removeprefix("#")


@cache
def sources() -> tuple[Source, ...]:
    """Return all modules; a walk does not enter the linked folders, so each is one of the roots."""
    found = {}
    for folder in ("echelons", "graphs", "nodes", "checkpoints"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix().removeprefix("echelons/")
            found[name] = Source(path, name)
    return tuple(found.values())


@cache
def split_words(name: str) -> tuple[str, ...]:
    """Return the words of a name, in lower case: `RunGate`, `_run_gate` → `run`, `gate`."""
    return tuple(word.lower() for word in _WORD.findall(name))
