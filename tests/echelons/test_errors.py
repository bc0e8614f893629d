"""Errors keep a code and fields, tell the way out, and stand in the table of the docs."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from echelons import (
    Agent,
    BreakerPolicy,
    DelegationPolicy,
    EchelonsError,
    Limits,
    Session,
    SqliteCheckpointer,
    errors,
)
from echelons.routing import ModelMatcher
from tests.error_codes import raises_code

SAMPLES = {"int": 4711, "Sequence[str]": ["sample-one", "sample-two"]}
REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "errors.md"
CLASSES = 45
"""How many classes of exceptions there may be, private ones included."""


def list_errors() -> list[type[EchelonsError]]:
    """Return every error that can be imported from the package, the base included."""
    classes = filter(inspect.isclass, vars(errors).values())
    return [one for one in classes if issubclass(one, EchelonsError)]


def build_error(error: type[EchelonsError]) -> tuple[EchelonsError, dict[str, Any]]:
    """Return an error of a class with a constructor, and its arguments."""
    parameters = list(inspect.signature(error).parameters.values())
    values = {
        one.name: SAMPLES.get(str(one.annotation), "sample-text")
        for one in parameters
        if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "text"
    }
    return error(**values), values


def iterate_modules() -> Iterator[ast.Module]:
    """Yield all modules of the source."""
    for package in ("echelons", "graphs", "nodes", "checkpoints"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            # The packages are linked into each other.
            if not any(parent.is_symlink() for parent in path.parents):
                yield ast.parse(path.read_text(encoding="utf-8"))


def list_codes() -> set[str]:
    """Return the codes that the source raises."""
    codes = {one.code for one in list_errors() if "code" in vars(one)}
    for module in iterate_modules():
        for node in ast.walk(module):
            match node:
                case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                    codes.add(code)
    return codes


CONCRETE = [one for one in list_errors() if one.__init__ is not EchelonsError.__init__]


def test_there_are_few_classes_of_exceptions() -> None:
    known = {name for name, one in vars(builtins).items() if inspect.isclass(one)}
    known = {name for name in known if issubclass(getattr(builtins, name), BaseException)}
    classes = {
        node.name: [ast.unparse(base) for base in node.bases]
        for module in iterate_modules()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
    }
    exceptions: set[str] = set()
    while more := {
        name
        for name, bases in classes.items()
        if name not in exceptions and not exceptions.union(known).isdisjoint(bases)
    }:
        exceptions |= more

    assert {one.__name__ for one in list_errors()} <= exceptions
    assert len(exceptions) <= CLASSES, sorted(exceptions)


def test_every_error_is_imported_from_one_address() -> None:
    assert {one.__name__ for one in list_errors()} == set(errors.__all__)
    assert {one.__module__ for one in list_errors()} == {"echelons.errors"}


def test_docs_list_all_classes_and_codes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| \S.* \|$", PAGE.read_text(), re.MULTILINE)

    assert {code for _, code in rows} == list_codes()
    assert {name for name, _ in rows} <= set(errors.__all__)
    assert {one.__name__ for one in list_errors()} == set(
        re.findall(r"^- `(\w+)`", PAGE.read_text(), re.MULTILINE)
    )


@pytest.mark.parametrize("error", list_errors())
def test_every_error_says_in_its_docstring_when_it_is_raised(error: type[EchelonsError]) -> None:
    assert error.__doc__
    assert error.__doc__ is not Exception.__doc__


@pytest.mark.parametrize("error", CONCRETE)
def test_error_documents_its_fields_and_tells_them(error: type[EchelonsError]) -> None:
    instance, values = build_error(error)

    _, _, section = (inspect.getdoc(error) or "").partition("Attributes:")
    assert set(re.findall(r"^ {4}(\w+):", section, re.MULTILINE)) == set(vars(instance))
    assert error.code
    for value in values.values():
        for part in value if isinstance(value, list) else [value]:
            assert str(part) in str(instance)


@pytest.mark.parametrize("error", CONCRETE)
def test_error_survives_transfer_to_another_process(error: type[EchelonsError]) -> None:
    instance, _ = build_error(error)

    for copied in (pickle.loads(pickle.dumps(instance)), copy.copy(instance)):
        assert type(copied) is error
        assert str(copied) == str(instance)
        assert vars(copied) == vars(instance)


def test_code_and_fields_survive_transfer_to_another_process() -> None:
    with raises_code("cyclic_tree") as caught:
        raise errors.ConfigurationError("{path: > }", code="cyclic_tree", path=("a", "b"))
    copied = pickle.loads(pickle.dumps(caught.value))

    assert (str(copied), copied.code, copied.path) == ("a > b", "cyclic_tree", ("a", "b"))
    assert errors.get_error_name(copied) == "CyclicTree"


def test_an_error_is_raised_shown_and_grouped_as_any_exception_is() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        try:
            raise errors.ThreadNotFound("kyiv") from KeyError("cause")
        except* errors.ThreadError as group:
            raise ExceptionGroup("all", group.exceptions) from None

    (found,) = raised.value.exceptions
    assert found.args == (str(found),)
    assert repr(found) == f"ThreadNotFound({str(found)!r})"
    assert isinstance(found.__cause__, KeyError)
    assert found != errors.ThreadNotFound("kyiv")


def test_an_error_of_a_caller_may_have_a_text_or_a_constructor_of_its_own() -> None:
    plain = type("Plain", (EchelonsError,), {})

    class Own(EchelonsError):
        """Made of a number."""

        number: int

        def __init__(self, number: int) -> None:
            self.number = number
            super().__init__(f"number {number}")

    assert str(plain("a text")) == "a text"
    assert str(plain("a {brace}")) == "a {brace}"
    assert str(copy.copy(Own(3))) == "number 3"
    assert Own(3).number == 3
    assert errors.get_error_name(Own(3)) == "Own"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Limits(depth=33), "depth=33"),
        (lambda: DelegationPolicy(timeout=-1), "timeout=-1"),
        (lambda: DelegationPolicy(matcher=5), "matcher=5.: it is not a matcher"),
        (lambda: DelegationPolicy(deriver=5), "deriver=5.: it is not a function"),
        (lambda: SqliteCheckpointer(_any(None)), "None is no database"),
        (lambda: DelegationPolicy(**_any({"timeot": 1})), "no such setting, but exploring"),
        (lambda: DelegationPolicy(breaker=_any({"failures": 0})), r"BreakerPolicy\(failures=0"),
        (lambda: BreakerPolicy(seconds=0), "seconds=0"),
        (lambda: Session(_any("travel"), ":memory:"), "'travel' is no agent"),
        (lambda: Session(_any(Agent), ":memory:"), "is no agent; pass an Agent"),
        (lambda: Session(Agent("a"), ":memory:", metadata=_any(5)), "metadata 5"),
        (lambda: SqliteCheckpointer(":memory:", allowed_types=_any(5)), "5 cannot be"),
        (lambda: SqliteCheckpointer(":memory:", busy_timeout=_any("x")), "busy_timeout='x'"),
        (lambda: SqliteCheckpointer(":memory:", remembered=-1), "remembered=-1"),
        (lambda: SqliteCheckpointer(":memory:", synchronous=_any("OFF")), "pass 'NORMAL'"),
        (lambda: ModelMatcher(_any(5)), "ModelMatcher.model=5"),
        (lambda: Session(Agent("a"), _any(Mute())), "<Mute instance at .* is no database"),
        (lambda: Agent("a", subordinates=[Mute()]), "agent 'a': <Mute instance at .* is no sub"),
        (lambda: Agent("a", tools=[Mute()]), "<Mute instance at .* is no tool"),
        (lambda: Agent("a", prompt=_any(Mute())), "prompt=<Mute instance at "),
        (
            lambda: Session(Agent("a"), ":memory:").send(_any(Mute())),
            "<Mute instance .* no task",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_with_an_error_of_ours(
    make: Callable[[], object], told: str
) -> None:
    with pytest.raises(errors.EchelonsError, match=told):
        make()


class Mute:
    """An object without a text."""

    def __repr__(self) -> str:
        raise ValueError


def _any(given: Any) -> Any:
    """Return what no type checker would let through."""
    return given
