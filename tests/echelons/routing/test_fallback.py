"""A matcher that fails kills no turn: words are compared instead, and the route says why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from math import nan
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.errors import GraphInterrupt

from echelons.errors import script_exhausted
from echelons.routing import EmbeddingMatcher, LexicalMatcher, Match, ModelMatcher, Router
from echelons.testing import Call, ScriptedModel
from tests.echelons.routing.trees import Fixed, travel
from tests.error_codes import raises_code

TASK = "Where is good food?"


class Raising(Fixed):
    """A matcher that raises what it was given."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def match(self, task: str) -> Mapping[int, Match]:
        raise self._error


class Saying(Fixed):
    """A matcher that says what it was given, whatever that is."""

    def __init__(self, said: Any) -> None:
        super().__init__()
        self._said = said

    def match(self, task: str) -> Any:
        return self._said


class Down(Embeddings):
    """An embedding service that cannot be reached."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise ConnectionError("no route\nto host\x1b[2J")

    def embed_query(self, text: str) -> list[float]:
        raise ConnectionError("no route to host")


async def test_while_a_service_is_down_words_are_compared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    router = Router(travel(), EmbeddingMatcher(Down()), threshold=0.9)
    by_words = Router(travel()).route(TASK)

    for found in (router.route(TASK), await router.aroute(TASK)):
        assert found.candidates == by_words.candidates
        assert found.threshold == LexicalMatcher.threshold
        assert found.fallback.startswith("EmbeddingMatcher failed: ConnectionError: no route to")
        assert found.explain() == f"{by_words.explain()}\n  by words alone, for {found.fallback}"
        assert found.json()["fallback"] == found.fallback
    assert [each.levelno for each in caplog.records] == [logging.WARNING] * 2
    assert "words are compared instead" in caplog.text


def test_a_secret_in_the_error_of_a_matcher_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    error = ConnectionError("password=hunter2 for Rome")

    found = Router(travel(), Raising(error)).route(TASK)
    own = Router(travel(), Raising(error), redactor=lambda text: text.replace("Rome", "[city]"))

    assert found.fallback == "Raising failed: ConnectionError: password=[redacted] for Rome"
    assert "hunter2" not in caplog.text
    assert own.route(TASK).fallback.endswith("hunter2 for [city]")


def test_a_route_by_the_matcher_says_nothing_of_a_fallback() -> None:
    found = Router(travel(), Fixed(tours=0.9)).route(TASK)

    assert (found.fallback, found.json()["fallback"]) == ("", "")
    assert "by words" not in found.explain()


async def test_parts_of_a_task_fall_back_too() -> None:
    router = Router(travel(), EmbeddingMatcher(Down()))
    task = "Plan a trip to Italy with great food"

    assert [each.candidate for each in router.split(task)] == [
        each.candidate for each in Router(travel()).split(task)
    ]
    assert all(each.route.fallback for each in await router.asplit(task))


@pytest.mark.parametrize(
    "said",
    [
        None,
        "tours",
        [0.5],
        {4: None},
        {4: 0.5},
        {4: ("much", "sure")},
        {4: Match(-0.5, 0.9)},
        {4: Match(1.5, 0.9)},
        {4: Match(nan, 0.9)},
        {4: Match(0.5, nan)},
        {4: Match("much", 0.9)},  # type: ignore[arg-type]
    ],
)
def test_what_is_no_match_is_not_used(said: Any) -> None:
    found = Router(travel(), Saying(said)).route(TASK)

    assert found.best is not None
    assert found.best.agent == "restaurants"
    assert found.fallback.startswith("Saying failed: ")


@pytest.mark.parametrize(
    "reply",
    [
        "tours, I think",
        [Call("rate_agents", {"ratings": [{"agent": "nobody", "match": 1}]})],
        [Call("rate_agents", {"ratings": [{"agent": "tours", "match": 7}]})],
    ],
)
def test_a_model_that_rates_no_agents_is_not_followed(reply: Any) -> None:
    found = Router(travel(), ModelMatcher(ScriptedModel([reply]))).route(TASK)

    assert found.best is not None
    assert found.best.agent == "restaurants"
    assert found.fallback.startswith("ModelMatcher failed: MatcherFailed: ")


def test_long_reason_is_shown_in_part() -> None:
    found = Router(travel(), Raising(ValueError("x" * 10_000_000))).route(TASK)

    assert len(found.fallback) < 300


@pytest.mark.parametrize(
    "error",
    [
        GraphInterrupt(),
        script_exhausted(None, 1, 1),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        SystemExit(),
    ],
)
async def test_what_is_no_failure_of_the_matcher_is_not_swallowed(error: BaseException) -> None:
    router = Router(travel(), Raising(error))

    for ask in (router.route, router.split):
        with pytest.raises(type(error)):
            ask(TASK)
    # A loop lets KeyboardInterrupt and SystemExit out at once, so those end the test's too.
    if isinstance(error, (Exception, asyncio.CancelledError)):
        with pytest.raises(type(error)):
            await router.aroute(TASK)


def test_a_matcher_without_a_readable_threshold_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def threshold(self: object) -> float:
        raise ValueError("not yet")

    monkeypatch.setattr(Fixed, "threshold", property(threshold))

    with raises_code("matcher_failed", match=r"the matcher Fixed failed: .*ValueError: not yet"):
        Router(travel(), Fixed())


def test_a_matcher_that_cannot_read_the_tree_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(self: object, profiles: object) -> Fixed:
        raise ValueError("no profile has a password=hunter2")

    monkeypatch.setattr(Fixed, "prepare", prepare)

    with raises_code("matcher_failed", match="the matcher Fixed failed: ValueError: ") as failed:
        Router(travel(), Fixed())

    assert "hunter2" not in str(failed.value)
    assert isinstance(failed.value.__cause__, ValueError)


@pytest.mark.parametrize("said", [None, 5, object()])
def test_reasons_that_are_none_do_not_fail_a_route(
    monkeypatch: pytest.MonkeyPatch, said: Any
) -> None:
    monkeypatch.setattr(Fixed, "reasons", lambda *_: said)

    assert (
        "no reasons: TypeError: " in Router(travel(), Fixed(restaurants=0.9)).route(TASK).explain()
    )
