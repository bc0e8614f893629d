"""A reply that an intervention cuts off: the end of the model call, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Self

from langchain_core.messages import AIMessage, BaseMessage

from echelons.guards.mailboxes import Mailboxes
from echelons.identity.lineage import CUT_KEY

NOTHING_SAID = "…"
"""The text of a reply that was cut off before it had any; many providers refuse an empty one."""


class ReplyCut(BaseException):
    """Ends a synchronous model call at a chunk of its reply.

    No `Exception`: a retry or a fallback around the model would catch that and call a model again,
    and LangChain would log it as a failure of its handler.
    """


class CutOnIntervention:
    """A block with a model call, which an intervention ends at the next chunk of the reply.

    Args:
        mailboxes: Know of interventions.
        config: The config of the node that calls the model.

    Attributes:
        said: The text of the model so far, if the reply was cut off.
    """

    def __init__(self, mailboxes: Mailboxes, config: Mapping[str, Any]) -> None:
        self.said: Sequence[BaseMessage] = ()
        self._mailboxes = mailboxes
        self._config = config

    def __enter__(self) -> Self:
        self._mailboxes.begin_reply(self._config, self._cut)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._mailboxes.end_reply(self._config, has_failed=kind not in (None, ReplyCut))
        return kind is ReplyCut

    def _cut(self, chunks: Sequence[BaseMessage]) -> NoReturn:
        self.said = chunks
        raise ReplyCut


class CancelOnIntervention:
    """`CutOnIntervention` in an event loop, where it cancels the call, as a stop does.

    LangChain's `agenerate` fails at what is neither an `Exception` nor a cancellation.
    """

    def __init__(self, mailboxes: Mailboxes, config: Mapping[str, Any]) -> None:
        self.said: Sequence[BaseMessage] = ()
        self._mailboxes = mailboxes
        self._config = config
        self._inside = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a model is called outside of a task")
        self._loop, self._task, self._before = task.get_loop(), task, task.cancelling()
        self._inside = True
        self._mailboxes.begin_reply(self._config, self._cut)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._inside = False
        self._mailboxes.end_reply(self._config, has_failed=kind is not None and not self.said)
        if not self.said:
            return False
        # Another cancellation of the task must stay in effect.
        only_ours = self._task.uncancel() <= self._before
        return only_ours and kind is asyncio.CancelledError

    def _cut(self, chunks: Sequence[BaseMessage]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing runs any more
            self._loop.call_soon_threadsafe(self._cancel, chunks)

    def _cancel(self, chunks: Sequence[BaseMessage]) -> None:
        # The reply may have ended by itself.
        if self._inside and not self.said:
            self.said = chunks
            self._task.cancel()


def join_chunks(said: Sequence[BaseMessage]) -> AIMessage:
    """Return what is kept of a reply that was cut off at a chunk."""
    first, *others = said
    merged: Any = first
    for chunk in others:
        merged += chunk
    return build_cut_message(merged)


def build_cut_message(reply: AIMessage) -> AIMessage:
    """Return what is kept of a reply that is cut off: its text, and its usage if it was reported.

    Its calls are dropped, so also what of its content may be a part of one.
    """
    return AIMessage(
        str(reply.text) or NOTHING_SAID,
        id=reply.id,
        name=reply.name,
        usage_metadata=reply.usage_metadata,
        response_metadata=dict(reply.response_metadata),
    )


def mark_cut(reply: AIMessage) -> AIMessage:
    """Return a reply with the mark that it was cut off by an intervention."""
    metadata = {**reply.response_metadata, CUT_KEY: "intervention"}
    return reply.model_copy(update={"response_metadata": metadata})
