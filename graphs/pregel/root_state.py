"""The state in which a run leaves a session's root, taken from LangChain's callback at its end."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import BaseCallbackHandler

from echelons.checkpoints.coordination.turns import RootState, Turn
from echelons.checkpoints.delta_channels import MESSAGES


class RootStateHandler(BaseCallbackHandler):
    """Notes the messages of the run whose own handler it is, when the run ends."""

    run_inline = True

    def __init__(self, state: RootState) -> None:
        self._state = state

    def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        """Note the messages."""
        self._state.messages = outputs.get(MESSAGES) if isinstance(outputs, dict) else None


def note_root_state(manager: Any, turn: Turn | None, thread_id: Any) -> None:
    """Note the state in which a run ends, if it is of the root of a session.

    Args:
        manager: The callbacks of the run; `None` for none.
        turn: The session's turn, if any.
        thread_id: The thread of the run: a tool may run a graph on another one.
    """
    if manager and turn and turn.thread_id == thread_id:
        # Those that are not inherited by the runs below; the list itself may be shared.
        manager.handlers = [*manager.handlers, RootStateHandler(turn.root)]
