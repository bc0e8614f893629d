"""The stream mode `messages` of a session: the tokens of models, and no messages of nodes.

LangGraph's handler is called for each start and end of a node, and streams every message that a
node returns and every whole reply. A session has these from the ends of the tasks. At each token it
also looks whether the reply is to end: by an order to its agent, or by a guard that cuts it off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk

from echelons.checkpoints.coordination.gate import TreeGate
from echelons.errors import StorageError
from echelons.langgraph_internals import StreamMessagesHandler
from echelons.models.door import check_halt

LOOK_INTERVAL = 0.1
"""Seconds between two looks for what other processes have written, while a reply is streamed."""


class TokenHandler(StreamMessagesHandler):
    """Streams the tokens of models, as LangGraph's handler does, and cuts replies off."""

    def __init__(
        self,
        stream: Callable[[Any], None],
        subgraphs: bool,
        gate: TreeGate | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(stream, subgraphs)
        self._gate = gate
        self._cutters = gate.list_cutters() if gate is not None else []
        self._clock = clock
        self._next_look = clock() + LOOK_INTERVAL
        self._generation = gate.signals.generation if gate is not None else 0
        self._look_task: asyncio.Task[None] | None = None
        self._said: dict[UUID, list[BaseMessage]] = {}

    @property
    def ignore_chain(self) -> bool:
        """Whether starts and ends of nodes are none of its business."""
        return True

    def on_llm_new_token(
        self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any
    ) -> None:
        """Stream a chunk, and end the reply if an order or a message for its agent says so."""
        if not isinstance(chunk, ChatGenerationChunk):
            return
        meta = self.metadata.get(run_id)
        if meta is None:
            return
        self._emit(meta, chunk.message)
        if self._gate is None:
            return
        self._said.setdefault(run_id, []).append(chunk.message)
        generation = self._gate.signals.generation
        if (now := self._clock()) >= self._next_look or generation != self._generation:
            self._next_look, self._generation = now + LOOK_INTERVAL, generation
            self._look(self._gate)
        check_halt()
        # A model that a tool or a graph within the agent calls has another namespace.
        metadata: dict[str, Any] = meta[1]
        namespace = str(metadata.get("langgraph_checkpoint_ns", ""))
        path = str(metadata.get("agent_path", ""))
        for take_cut in self._cutters:
            if cut := take_cut(namespace, path):
                # Nothing more of this reply is streamed.
                del self.metadata[run_id]
                cut(self._said.pop(run_id))

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget a model call that has ended."""
        self.metadata.pop(run_id, None)
        self._said.pop(run_id, None)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget a model call that has failed."""
        self.metadata.pop(run_id, None)
        self._said.pop(run_id, None)

    def _look(self, gate: TreeGate) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            with suppress(StorageError):  # the agent meets the error at its own next write
                gate.look()
            return
        # The loop does not wait for the database: the next chunk sees what was found.
        if self._look_task is None or self._look_task.done():
            self._look_task = loop.create_task(_alook(gate))


async def _alook(gate: TreeGate) -> None:
    with suppress(StorageError):
        await gate.arun(gate.look)


def stream_only_tokens(manager: Any, gate: Any) -> None:
    """Replace the handler of the stream mode `messages`, which LangGraph has added last."""
    handlers = manager.inheritable_handlers if manager else []
    if handlers and type(handlers[-1]) is StreamMessagesHandler:
        tree_gate = gate if isinstance(gate, TreeGate) else None
        handlers[-1] = TokenHandler(handlers[-1].stream, handlers[-1].subgraphs, tree_gate)
