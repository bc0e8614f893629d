"""What a message notes of the requests that it makes, before anybody is asked. Pure.

``reason`` calls it when it knows where the level goes on to, so that the note is of what is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.types import Send

from echelons.delegation.calls import requests_of
from echelons.delegation.request_builder import noted, plain
from echelons.identity.lineage import REQUESTS_KEY, Identity


def with_notes(update: Mapping[str, Any], goes: object, identity: Identity) -> dict[str, Any]:
    """Return the update of a whole reply, its message with the notes in it.

    Args:
        update: The update.
        goes: Where the level goes on to.
        identity: Who replied.
    """
    sends = [each for each in goes if isinstance(each, Send)] if isinstance(goes, list) else []
    queues = [each.arg["queue"] for each in sends if each.node == "delegate"]
    sent = {order["call_id"]: order["request"] for queue in queues for order in queue}
    if not sent:
        return dict(update)
    message, *answers = update["messages"]
    notes: dict[str, Any] = {}
    for asked, parted in requests_of(message, message.tool_calls):
        if asked.call_id in sent:
            known = plain(asked, parted, message, identity.agent, identity.thread_id)
            if note := noted(sent[asked.call_id], known):
                notes[asked.call_id] = note
    if not notes:
        return dict(update)
    told = {**message.response_metadata, REQUESTS_KEY: notes}
    return {
        **update,
        "messages": [message.model_copy(update={"response_metadata": told}), *answers],
    }
