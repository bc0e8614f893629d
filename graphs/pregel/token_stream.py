"""The stream mode `messages` of a session: the tokens of models, and no messages of nodes.

LangGraph's handler is called for each start and end of a node, and streams every message that a
node returns and every whole reply. A session has these from the ends of the tasks.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from echelons.langgraph_internals import StreamMessagesHandler


class TokenHandler(StreamMessagesHandler):
    """Streams the tokens of models, as LangGraph's handler does."""

    @property
    def ignore_chain(self) -> bool:
        """Whether starts and ends of nodes are none of its business."""
        return True

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget a model call that has ended."""
        self.metadata.pop(run_id, None)


def stream_only_tokens(manager: Any) -> None:
    """Replace the handler of the stream mode `messages`, which LangGraph has added last.

    Args:
        manager: The callbacks of the root's run; `None` for none.
    """
    handlers = manager.inheritable_handlers if manager else []
    if handlers and type(handlers[-1]) is StreamMessagesHandler:
        handlers[-1] = TokenHandler(handlers[-1].stream, handlers[-1].subgraphs)
