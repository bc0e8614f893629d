"""The Python of a profile: what it declares, read without executing it, and what it holds.

`ast` finds the names, parameters and docstrings of tools. `load_declared` executes a file.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeGuard

from echelons.errors import get_error_name
from echelons.profiles.settings_file import Fault, FolderReader, SourceFile
from echelons.text.error_lines import describe_error

Kind = Literal["tools", "middleware"]
_Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DECORATORS = frozenset(
    {
        "after_agent",
        "after_model",
        "before_agent",
        "before_model",
        "dynamic_prompt",
        "wrap_model_call",
        "wrap_tool_call",
    }
)
"""LangChain's decorators, which make a middleware of a function."""
_OTHER_BASES = frozenset(
    {
        "ABC",
        "AgentState",
        "BaseModel",
        "Enum",
        "Exception",
        "Generic",
        "NamedTuple",
        "Protocol",
        "StrEnum",
        "TypedDict",
        "object",
    }
)
"""Bases of classes that a middleware has beside it, such as for its state."""


class Declaration(NamedTuple):
    """The declarations of a file for an agent."""

    name: str
    variable: str
    line: int
    signature: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class PythonFile:
    """A file of Python."""

    source: SourceFile
    declared: tuple[Declaration, ...]
    helpers: tuple[SourceFile, ...] = ()


def parse_python(source: SourceFile, kind: Kind, reader: FolderReader) -> PythonFile | None:
    """Return what a file declares, without executing it; `None` if it is no Python.

    Tools are the functions whose names do not begin with `_`; middleware are classes with a base
    that may be one, and functions with a decorator of LangChain's. A list `__all__` says instead
    which names are meant.
    """
    tree = parse_module(source, reader)
    if tree is None:
        return None
    listed = _read_all(tree)
    bound = dict(_iterate_bound(tree))
    if listed is None:
        listed = [node.name for node in tree.body if _is_declared(node, kind, bound)]
    declared: list[Declaration] = []
    for name in listed:
        node = bound.get(name)
        if node is None and "*" not in bound:
            why = f"__all__ names {name!r}, which the file does not define"
            reader.add_fault(
                source.name,
                next((node.lineno for node in tree.body if _is_all(node)), 0),
                "NameError",
                why,
            )
        elif not isinstance(node, _DEFINITIONS):
            declared.append(Declaration(name, name, getattr(node, "lineno", 0)))
        else:
            try:
                signature = "" if isinstance(node, ast.ClassDef) else f"({ast.unparse(node.args)})"
            except RecursionError:  # a default of thousands of operators
                signature = "(…)"
            doc = (ast.get_docstring(node) or "").strip().partition("\n")[0]
            declared.append(
                Declaration(
                    _read_tool_name(node) or node.name, node.name, node.lineno, signature, doc
                )
            )
            if kind == "tools" and not node.decorator_list and not ast.get_docstring(node):
                why = (
                    f"the tool {name!r} has no docstring, by which a model knows it: write one, or "
                    "begin the name with '_' if it is no tool"
                )
                reader.add_fault(source.name, node.lineno, "UnknownTool", why)
    if not listed:
        why = f"it declares no {kind.removesuffix('s')}: name in __all__ what it has, or remove it"
        reader.add_fault(source.name, 0, "UnknownTool", why)
    return PythonFile(source, tuple(declared))


def parse_module(source: SourceFile, reader: FolderReader) -> ast.Module | None:
    """Return a file as Python parses it; `None` if it is no Python."""
    try:
        return ast.parse(source.text, source.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 0
        why = f"it is no Python: {getattr(error, 'msg', error)}"
        reader.add_fault(source.name, line, type(error).__name__, why)
        return None


def load_declared(file: PythonFile, kind: Kind) -> tuple[dict[str, Any], Fault | None]:
    """Execute a file, and return what it declares by name, and what was wrong with it.

    The text executed is the one that was read. The module can import others of its folder by
    `from . import …`, for its package is the folder. Of a middleware class, an object is made.
    """
    source = file.source
    module = ModuleType(f"{_get_package(source.path.parent)}.{source.path.stem}")
    module.__file__ = str(source.path)
    module.__package__ = module.__name__.rpartition(".")[0]
    sys.modules[module.__name__] = module
    objects: dict[str, Any] = {}
    try:
        exec(compile(source.text, str(source.path), "exec"), vars(module))  # noqa: S102  trusted
        for item in file.declared:
            value = getattr(module, item.variable)
            makes = kind == "middleware" and isinstance(value, type)
            objects[item.name] = value() if makes else value
    except (Exception, SystemExit) as error:  # noqa: BLE001  code of others may raise anything
        sys.modules.pop(module.__name__, None)
        lines = [
            frame.lineno or 0
            for frame in extract_tb(error.__traceback__)
            if frame.filename == str(source.path)
        ]
        why = f"executing it raised {describe_error(error)}"
        return {}, Fault(source.name, lines[-1] if lines else 0, get_error_name(error), why)
    return objects, None


def unload_package(folder: Path) -> None:
    """Forget what was imported of a folder, so that it is read again; who holds it keeps it."""
    package = _name_package(folder)
    for name in [module for module in sys.modules if module.partition(".")[0] == package]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _name_package(folder: Path) -> str:
    """Return the name of the package of a folder, which is the same in every process."""
    return f"echelons_profile_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"


def _get_package(folder: Path) -> str:
    name = _name_package(folder)
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return name


def _is_declared(
    node: ast.stmt, kind: Kind, bound: Mapping[str, ast.AST]
) -> TypeGuard[_Definition]:
    if not isinstance(node, _DEFINITIONS) or node.name.startswith("_"):
        return False
    if kind == "tools":
        return not isinstance(node, ast.ClassDef)
    if isinstance(node, ast.ClassDef):
        return _may_be_middleware(node, bound, {node.name})
    return any(_read_name(item) in _DECORATORS for item in node.decorator_list)


def _may_be_middleware(node: ast.ClassDef, bound: Mapping[str, ast.AST], bases: set[str]) -> bool:
    """Return whether a class has a base that is not known to be another thing."""
    for name in map(_read_name, node.bases):
        base = bound.get(name)
        if isinstance(base, ast.ClassDef):
            if name not in bases and _may_be_middleware(base, bound, bases | {name}):
                return True
        elif name not in _OTHER_BASES:
            return True
    return False


def _read_name(node: ast.expr) -> str:
    """Return the last part of a name, such as of a base or a decorator; empty if it is none."""
    if isinstance(node, (ast.Call, ast.Subscript)):
        return _read_name(node.func if isinstance(node, ast.Call) else node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _read_tool_name(node: _Definition) -> str | None:
    """Return the name that a decorator gives, as `@tool("name")` does."""
    for item in node.decorator_list:
        if isinstance(item, ast.Call) and getattr(item.func, "id", "") == "tool":
            arguments = [*item.args, *(word.value for word in item.keywords if not item.args)]
            if (
                arguments
                and isinstance(arguments[0], ast.Constant)
                and isinstance(arguments[0].value, str)
            ):
                return arguments[0].value
    return None


def _read_all(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if _is_all(node) and isinstance(
            value := getattr(node, "value", None), (ast.List, ast.Tuple)
        ):
            return [str(item.value) for item in value.elts if isinstance(item, ast.Constant)]
    return None


def _is_all(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _iterate_bound(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a module binds, also in `if` and `try`; `*` for a star import."""
    left: list[ast.AST] = list(reversed(tree.body))
    while left:
        node = left.pop()
        if isinstance(node, _DEFINITIONS):
            yield node.name, node
            continue  # what is inside is not bound in the module
        if isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0], node
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node
        left += reversed(list(ast.iter_child_nodes(node)))
