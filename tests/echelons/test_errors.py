"""Every error keeps its facts in fields, and tells the value and the way out in its message."""

from __future__ import annotations

import copy
import inspect
import pickle
import pkgutil
import re
from collections.abc import Callable, Iterator
from importlib import import_module
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

SAMPLES = {
    "int": 4711,
    "float": 0.5,
    "Sequence[str]": ["sample-one", "sample-two"],
    "Sequence[tuple[str, str]]": [("sample-path", "sample-reason")],
}


def all_errors() -> list[type[EchelonsError]]:
    """Return every error that can be imported from the package, the base included."""
    found = [each for each in vars(errors).values() if inspect.isclass(each)]
    return [each for each in found if issubclass(each, EchelonsError)]


def parameters(error: type[EchelonsError]) -> dict[str, inspect.Parameter]:
    """Return what an error is made of."""
    if error.__init__ is Exception.__init__:
        return {}
    return dict(list(inspect.signature(error).parameters.items()))


def made(error: type[EchelonsError]) -> tuple[EchelonsError, dict[str, Any]]:
    """Return an error of a kind, and what it was made of."""
    given = {
        name: SAMPLES.get(str(each.annotation), "sample-text")
        for name, each in parameters(error).items()
    }
    return error(**given), given


def documented(error: type[EchelonsError]) -> Iterator[str]:
    """Yield the names under ``Attributes`` in an error's docstring."""
    _, _, section = (inspect.getdoc(error) or "").partition("Attributes:")
    yield from re.findall(r"^ {4}(\w+):", section, re.MULTILINE)


def defined() -> set[type[EchelonsError]]:
    """Return every error that a file of the package defines."""
    files = [
        import_module(f"{errors.__name__}.{each.name}")
        for each in pkgutil.iter_modules(errors.__path__)
    ]
    found = [each for file in files for each in vars(file).values() if inspect.isclass(each)]
    return {each for each in found if issubclass(each, EchelonsError)}


CONCRETE = [each for each in all_errors() if parameters(each)]


def test_there_is_one_tree_of_errors() -> None:
    assert len(all_errors()) > 20
    assert all(issubclass(each, Exception) for each in all_errors())


def test_every_error_is_imported_from_one_address() -> None:
    assert {each.__name__ for each in defined()} == set(errors.__all__)
    assert {f"{each.__module__}.{each.__name__}" for each in defined()} == {
        f"echelons.errors.{name}" for name in errors.__all__
    }


@pytest.mark.parametrize("error", all_errors())
def test_every_error_says_in_its_docstring_when_it_is_raised(error: type[EchelonsError]) -> None:
    assert error.__doc__
    assert error.__doc__ is not Exception.__doc__


@pytest.mark.parametrize("error", CONCRETE)
def test_an_error_keeps_what_it_documents_in_fields(error: type[EchelonsError]) -> None:
    instance, _ = made(error)

    fields = set(documented(error))
    assert fields
    assert fields == set(vars(instance))


@pytest.mark.parametrize("error", CONCRETE)
def test_error_shows_all_its_values(error: type[EchelonsError]) -> None:
    instance, given = made(error)

    for value in given.values():
        for each in [value] if isinstance(value, str | int | float) else value:
            for part in [each] if isinstance(each, str | int | float) else each:
                assert str(part) in str(instance)


@pytest.mark.parametrize("error", CONCRETE)
def test_a_field_that_holds_several_values_cannot_be_changed(error: type[EchelonsError]) -> None:
    instance, given = made(error)

    for name, value in given.items():
        if isinstance(value, list) and name in vars(instance):
            assert getattr(instance, name) == tuple(value)


@pytest.mark.parametrize("error", CONCRETE)
def test_an_error_survives_the_way_to_another_process(error: type[EchelonsError]) -> None:
    instance, _ = made(error)

    for copied in (pickle.loads(pickle.dumps(instance)), copy.copy(instance)):
        assert type(copied) is error
        assert str(copied) == str(instance)
        assert vars(copied) == vars(instance)


def test_an_error_is_raised_shown_and_grouped_as_any_exception_is() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        try:
            raise errors.ThreadNotFound("kyiv") from KeyError("cause")
        except* errors.EchelonsError as group:
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
    assert str(copy.copy(Own(3))) == "number 3"
    assert Own(3).number == 3


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
