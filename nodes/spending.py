"""What a message has cost: nothing, if no model wrote it. Pure."""

from __future__ import annotations

from langchain_core.messages import AIMessage, BaseMessage

from echelons.delegation.request import Usage
from echelons.guards.gate import HALT_KEY
from echelons.identity.lineage import FORWARDED_KEY

RETURNED_KEY = "returned"
"""Where a message says that it is what a function or a Runnable returned."""
_UNTHOUGHT = frozenset({HALT_KEY, FORWARDED_KEY, RETURNED_KEY})


def usage_of(message: BaseMessage) -> Usage:
    """Return what a message has cost."""
    # The last word of an agent that was halted is no model's, nor what is passed on.
    if not isinstance(message, AIMessage) or _UNTHOUGHT & message.response_metadata.keys():
        return Usage()
    tokens = message.usage_metadata
    return Usage(
        input_tokens=tokens["input_tokens"] if tokens else 0,
        output_tokens=tokens["output_tokens"] if tokens else 0,
        model_calls=1,
    )
