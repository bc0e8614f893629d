"""Python of a profile: what it declares without being executed, and what it holds when it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelons.profiles.python_file import Kind, PythonFile, load_declared, parse_python
from echelons.profiles.settings_file import FolderReader
from tests.echelons.profiles.conftest import Write


def parse(write: Write, text: str, kind: Kind) -> tuple[PythonFile, FolderReader]:
    folder = write({f"{kind}/one.py": text})
    reader = FolderReader(folder)
    source = reader.read_file(folder / kind / "one.py")
    assert source
    file = parse_python(source, kind, reader)
    assert file
    return file, reader


MIDDLEWARE = """
class Log(dict):
    def __init__(self):
        super().__init__(made=True)


def before_model(function):
    return {"wraps": function.__name__}


@before_model
def look(state): ...


class _Hidden: ...
"""


def test_middleware_are_classes_and_functions_with_a_decorator(write: Write) -> None:
    file, reader = parse(write, MIDDLEWARE, "middleware")

    assert [each.name for each in file.declared] == ["Log", "look"]
    assert reader.faults == []
    found, fault = load_declared(file, "middleware")
    assert (found, fault) == (
        {"Log": {"made": True}, "look": {"wraps": "look"}},
        None,
    )


def test_a_middleware_class_that_cannot_be_made_is_named(write: Write) -> None:
    file, _ = parse(write, "class Log(dict):\n    def __init__(self, path): ...\n", "middleware")

    found, fault = load_declared(file, "middleware")

    assert found == {}
    assert fault
    assert (fault.file, fault.error) == ("middleware/one.py", "TypeError")
    assert "missing 1 required positional argument" in fault.why


def test_what_a_middleware_needs_beside_it_is_none(write: Write) -> None:
    text = """
from langchain.agents import AgentState, middleware
from langchain_core.tools import tool
from typing_extensions import TypedDict


class Counted(AgentState):
    count: int


class Settings(TypedDict):
    limit: int


class More(Counted): ...


class Plain: ...


@tool
def note(text: str) -> str:
    "Note it."
    return "noted"


def helper(): ...


class Notes(middleware.AgentMiddleware[Counted, None]):
    state_schema = Counted
    tools = [note]


class Own(Notes): ...


@middleware.before_model(state_schema=Counted)
def look(state, runtime): ...
"""
    file, reader = parse(write, text, "middleware")

    assert [each.name for each in file.declared] == ["Notes", "Own", "look"]
    assert reader.faults == []
    found, fault = load_declared(file, "middleware")
    assert (fault, [each.name for each in found.values()]) == (None, ["Notes", "Own", "look"])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("async def f(a, *, b=1): 'Doc.'\n", ["f(a, *, b=1)"]),
        ("@tool('g')\ndef f(a: 'int') -> str: ...\n", ["g(a: 'int')"]),
        ("@tool(name_or_callable='h')\ndef f(): ...\n", ["h()"]),
        ("if True:\n    def f(a): 'Doc.'\n__all__ = ['f']\n", ["f(a)"]),
        ("from os import *\n__all__ = ('path',)\n", ["path"]),
        ("for f in []: pass\n__all__: list[str] = ['f']\n", ["f"]),
        ("def f(a=" + "+".join("1" * 600) + "): 'Doc.'\n", ["f(…)"]),
    ],
)
def test_tools_are_known_by_name_and_parameters(write: Write, text: str, names: list[str]) -> None:
    file, reader = parse(write, text, "tools")

    assert [f"{each.name}{each.signature}" for each in file.declared] == names
    assert reader.faults == []


def test_the_text_that_was_read_is_what_is_executed(write: Write, tmp_path: Path) -> None:
    file, _ = parse(write, "def f():\n    'Doc.'\n    return 'read'\n", "tools")
    write({"tools/one.py": "raise SystemExit\n"})

    assert load_declared(file, "tools")[0]["f"]() == "read"
