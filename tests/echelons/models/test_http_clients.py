"""The HTTP clients, with connections that stay open as a provider's do."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from echelons.models.openai_chat import AsyncHttpClient

Serve = Callable[..., tuple[Any, Any]]


def test_one_model_serves_one_event_loop_after_the_other(serve: Serve) -> None:
    model, server = serve("a", "b", "c", keep_alive=True)
    answers = [asyncio.run(model.ainvoke("hi")).content for _ in range(3)]
    assert answers == ["a", "b", "c"]
    assert len(server.requests) == 3  # no request was sent twice


def test_one_model_serves_event_loops_in_several_threads(serve: Serve) -> None:
    model, server = serve(*["a"] * 20, keep_alive=True)

    def twice(_: int) -> list[str]:
        async def ask() -> list[str]:
            return [(await model.ainvoke("hi")).content for _ in range(2)]

        return asyncio.run(ask())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(twice, range(10))) == [["a", "a"]] * 10
    assert len(server.requests) == 20


async def test_calls_in_one_loop_share_their_connections(serve: Serve) -> None:
    model, server = serve(*["a"] * 3, keep_alive=True)
    for _ in range(3):
        await model.ainvoke("hi")
    assert server.connections == 1


async def test_calls_side_by_side_are_all_answered(serve: Serve) -> None:
    model, server = serve(*["a"] * 10, keep_alive=True)
    answers = await asyncio.gather(*(model.ainvoke("hi") for _ in range(10)))
    assert [answer.content for answer in answers] == ["a"] * 10
    assert len(server.requests) == 10


def test_a_dropped_model_leaves_no_socket(serve: Serve) -> None:
    model, _ = serve("a", "b", keep_alive=True)
    model.invoke("hi")
    asyncio.run(model.ainvoke("hi"))
    del model
    gc.collect()  # an open socket would warn here, and warnings are errors


async def test_a_closed_client_has_closed_its_connections_and_sends_no_more(serve: Serve) -> None:
    _, server = serve("a", keep_alive=True)
    client = AsyncHttpClient(trust_env=False)
    response = await client.get(server.url + "/models")
    assert response.status_code == 200
    pool = await client._get_loop_client()
    await client.aclose()
    assert pool.is_closed
    with pytest.raises(RuntimeError, match="has been closed"):
        await client.get(server.url + "/models")
    assert server.connections == 1
