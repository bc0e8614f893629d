"""Which models get a timeout with their calls, and which timeout it is."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_openai import ChatOpenAI
from openai import Timeout
from pydantic import SecretStr

from echelons.models.bound_model import limit_call, takes_timeout
from echelons.run_context import CONTEXT_KEY, RunContext
from echelons.testing import FakeClock, ScriptedModel


class Timed(BaseChatModel):
    """A model of somebody's own, which takes a timeout."""

    default_request_timeout: float | None = None

    @property
    def _llm_type(self) -> str:
        return "timed"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError


def create_openai(**options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="test-model", api_key=SecretStr("key"), **options)


def get_timeout(model: Any, seconds: float | None) -> dict[str, Any]:
    config: Any = {"configurable": {CONTEXT_KEY: RunContext(deadline=seconds)}}
    return limit_call(model, config)[1]


def test_a_model_takes_a_timeout_if_its_client_does() -> None:
    assert takes_timeout(create_openai())
    assert takes_timeout(Timed())
    assert not takes_timeout(ScriptedModel([]))
    assert not takes_timeout(object())


@pytest.mark.parametrize(
    ("own", "given"),
    [
        (None, 20),
        (60, 20),
        (5.0, 5),
        ((5, 60), (5, 20)),
    ],
)
def test_the_shorter_time_counts(clock: FakeClock, own: Any, given: Any) -> None:
    clock.advance(10)

    assert get_timeout(create_openai(timeout=own), 30) == {"timeout": given}


def test_each_part_of_a_timeout_is_shortened(clock: FakeClock) -> None:
    parts = Timeout(60, connect=5)

    assert get_timeout(create_openai(timeout=parts), 30)["timeout"].as_dict() == {
        "connect": 5,
        "read": 30,
        "write": 30,
        "pool": 30,
    }


def test_a_model_of_ones_own_gets_it_too(clock: FakeClock) -> None:
    assert get_timeout(Timed(), 30) == {"timeout": 30}
    assert get_timeout(Timed(default_request_timeout=3), 30) == {"timeout": 3}


def test_without_a_deadline_or_with_a_cache_nothing_is_given(clock: FakeClock) -> None:
    config: Any = {"configurable": {}}

    assert limit_call(create_openai(), config) == (config, {})
    assert get_timeout(create_openai(cache=InMemoryCache()), 30) == {}
