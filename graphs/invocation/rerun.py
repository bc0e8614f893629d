"""Runs a tree again whose run ended with an interrupt that has become obsolete.

Of several agents asked in parallel, one may wait for a person when the others already suffice.
LangGraph ends the run then, as every task of a superstep must end; it is started again at once,
and the waiting agent finds that it has lost the race. `AgentGraph` runs within this.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import INTERRUPT

from echelons.checkpoints.inherited_config import with_saver
from echelons.graphs.invocation.entry import TreeEntry
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY
from echelons.nodes.delegating.attempt import is_failure


def stream_until_settled(
    run: Callable[..., Iterator[Any]], given: Any, entry: TreeEntry
) -> Iterator[Any]:
    """Yield the parts of a run, and of its reruns until no interrupt is obsolete.

    Args:
        run: Starts a run with an input and the keyword `config`.
        given: The input of the first run; reruns get `None`.
        entry: The run. Its gate is closed at the end, also after an error; reruns begin at the
            checkpoint that the run before has ended with.
    """
    config = entry.config
    with entry.gate:
        while True:
            entry.races.begin()
            questions: list[Any] = []
            try:
                for part in run(given, config=config):
                    if _is_root_interrupt(part):
                        questions.append(part)
                    else:
                        yield part
            except Exception as error:
                if is_failure(error):
                    own = with_saver(config, entry.saver)
                    entry.failures.record(error, own, leaves=True)
                raise
            if not entry.races.has_obsolete_question:
                yield from questions
                return
            given, config = None, _without_checkpoint(config)


async def astream_until_settled(
    run: Callable[..., AsyncIterator[Any]], given: Any, entry: TreeEntry
) -> AsyncGenerator[Any]:
    """Async version of `stream_until_settled`."""
    config = entry.config
    async with entry.gate:
        while True:
            entry.races.begin()
            questions: list[Any] = []
            try:
                # Closed with this generator: LangGraph cancels at once, not at garbage collection.
                async with aclosing(
                    cast("AsyncGenerator[Any]", run(given, config=config))
                ) as parts:
                    async for part in parts:
                        if _is_root_interrupt(part):
                            questions.append(part)
                        else:
                            yield part
            except Exception as error:
                if is_failure(error):
                    own = with_saver(config, entry.saver)
                    await entry.failures.arecord(error, own, leaves=True)
                raise
            if not entry.races.has_obsolete_question:
                for question in questions:
                    yield question
                return
            given, config = None, _without_checkpoint(config)


def _without_checkpoint(config: RunnableConfig) -> RunnableConfig:
    """Return a run's config without the past checkpoint that it named, if it did."""
    named = ("checkpoint_id", CHECKPOINT_MAP_KEY)
    kept = {key: value for key, value in config["configurable"].items() if key not in named}
    return {**config, "configurable": kept}


def _is_root_interrupt(part: Any) -> bool:
    """Return whether a part of a stream is an interrupt of the root graph."""
    payload = part
    if isinstance(part, tuple):
        if part[0] and isinstance(part[0], tuple):  # of a subgraph
            return False
        payload = part[-1]
    return isinstance(payload, dict) and INTERRUPT in payload
