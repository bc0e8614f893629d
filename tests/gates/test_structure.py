"""How the code is divided: modules, folders, import circles, twins, helpers and error classes."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import grimp

from tests.gates.figures import check_gate
from tests.gates.sources import ROOT, Function, Source, sources

TWIN = 5
"""Statements that a function has at most without counting as one of two twins."""


def test_number_of_modules() -> None:
    check_gate("modules", len(sources()))


def test_modules_of_a_folder() -> None:
    folders = Counter(
        source.name.rpartition("/")[0]
        for source in sources()
        if not source.name.endswith("__init__.py")
    )

    check_gate("modules in the largest folder", max(folders.values()), folders.most_common(10))


def find_circles(imports: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Yield the modules that import each other in a circle (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []
    for start in imports:
        path = [] if start in number else [(start, iter(sorted(imports[start])))]
        while path:
            module, rest = path[-1]
            if module not in number:
                number[module] = lowest[module] = len(number)
                open_.append(module)
            for imported in rest:
                if imported not in number:
                    path.append((imported, iter(sorted(imports[imported]))))
                    break
                if imported in open_:
                    lowest[module] = min(lowest[module], number[imported])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[module])
                if lowest[module] == number[module]:
                    at = open_.index(module)
                    yield {*open_[at:]}
                    del open_[at:]


def test_import_circles() -> None:
    graph = grimp.build_graph("echelons", cache_dir=None, exclude_type_checking_imports=True)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    # `Agent.compile` and `Agent.from_folder` import them when called: the contracts say so.
    outwards = ("echelons.graphs", "echelons.profiles")
    imports["echelons.agent"] = {
        name for name in imports["echelons.agent"] if not name.startswith(outwards)
    }

    circles = sorted(find_circles(imports), key=len, reverse=True)

    check_gate("modules in an import circle", len(circles[0]), map(sorted, circles[:3]))


def test_circles_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}

    assert sorted(map(sorted, find_circles(imports))) == [["a", "b", "c"], ["d", "e"], ["f"]]


def count_statements(function: Function) -> int:
    """Return how many statements a function has, its docstring aside."""
    statements = sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1
    return statements - (ast.get_docstring(function) is not None)


def find_twins(source: Source) -> Iterator[str]:
    """Yield pairs such as `send` and `asend` of one scope that are both longer than `TWIN`."""
    for scope in source.nodes:
        body = getattr(scope, "body", None)
        functions = (
            [node for node in body if isinstance(node, Function)] if isinstance(body, list) else []
        )
        long = [function for function in functions if count_statements(function) > TWIN]
        plain = {node.name.strip("_"): node for node in long if isinstance(node, ast.FunctionDef)}
        for node in long:
            name = node.name.strip("_")
            names = {name.removeprefix("a"), name.removeprefix("async_")}
            for twin in names & {*plain} if isinstance(node, ast.AsyncFunctionDef) else ():
                yield f"{source.name}:{plain[twin].lineno} {twin}, {node.name}"


def test_twins_of_sync_and_async() -> None:
    twins = [twin for source in sources() for twin in find_twins(source)]

    check_gate("twins of sync and async", len(twins), twins)


def count_uses_of_helpers(source: Source) -> dict[str, int]:
    """Return how often each private function is used in its module."""
    used = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in source.nodes
        if isinstance(node, ast.Name | ast.Attribute)
    )
    helpers = {node.name for node in source.functions if is_private(node.name)}
    return {f"{source.name} {name}": used[name] for name in sorted(helpers)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def test_private_helpers_used_once() -> None:
    uses = {
        name: times for source in sources() for name, times in count_uses_of_helpers(source).items()
    }
    once = [name for name, times in uses.items() if times == 1]

    check_gate("private helpers used once, %", round(100 * len(once) / len(uses), 1), once)


def test_number_of_error_classes() -> None:
    bases = {
        node.name: [ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in node.bases]
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
    }
    errors = {
        name
        for name, kind in vars(builtins).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    builtin = len(errors)
    while more := {name for name, names in bases.items() if errors.intersection(names)} - errors:
        errors |= more

    check_gate("error classes", len(errors) - builtin, sorted(errors & {*bases}))


def list_private_names() -> set[str]:
    """Return the private names of functions, classes and attributes of the package."""
    names = {
        node.attr if isinstance(node, ast.Attribute) else node.name
        for source in sources()
        for node in source.nodes
        if isinstance(node, Function | ast.ClassDef | ast.Attribute)
    }
    of_tuples = {"_asdict", "_fields", "_make", "_replace"}
    return {name for name in names if is_private(name) and not name.endswith("_")} - of_tuples


def find_private_access(tree: ast.Module, private: set[str]) -> Iterator[str]:
    """Yield the private names of the package that a test takes from an object other than itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            inner = ast.unparse(node.value)
            if node.attr in private and inner not in ("self", "cls", "super()", "os"):
                yield f"{inner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("echelons"):
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Constant) and node.value in private:
            yield repr(node.value)


def test_test_files_that_reach_into_private_names() -> None:
    private = list_private_names()
    may_reach = re.compile(r"""(?<!self)(?<!cls)\._[a-z]|["']_[a-z]|import .*\b_[a-z]""")
    files: list[str] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        # Parsing all of them takes longer than all other gates.
        names = find_private_access(ast.parse(text), private) if may_reach.search(text) else ()
        if reached := [*names]:
            files.append(f"{path.relative_to(ROOT)}: {reached}")

    check_gate("test files that reach into private names", len(files), files)
