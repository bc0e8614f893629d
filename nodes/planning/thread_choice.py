"""Chooses the thread of a subordinate that a call continues or starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_core.messages import AIMessage

from echelons.delegation.calls import SubordinateCall
from echelons.identity.lineage import Identity, derive_subordinate_thread_id
from echelons.identity.thread_history import Head, build_head


def choose_threads(
    delegations: Sequence[SubordinateCall],
    targets: Mapping[str, str],
    known: Mapping[str, Head],
    message: AIMessage,
    identity: Identity,
) -> tuple[dict[str, str], dict[str, Head]]:
    """Choose the thread of each call, in call order.

    A call with `reset` starts a thread. Any other continues the subordinate's latest thread,
    including one started earlier in the same message, or starts the first. A subordinate that
    relays requests has one thread for each target: on one thread, requests for two agents
    below it would wait for each other.

    Args:
        delegations: The calls.
        targets: Relay targets below the subordinate (`way` of a `Head`), by call id.
        known: The existing threads, in the order of their start.
        message: The message that contains the calls.
        identity: The agent that calls.

    Returns:
        Thread ids by call id, and the state entry of each of these threads.
    """
    latest = {(head["agent"], head.get("way", "")): thread for thread, head in known.items()}
    threads: dict[str, str] = {}
    used: dict[str, Head] = {}
    for each in delegations:
        way = targets.get(each.call_id, "")
        thread = None if each.reset else latest.get((each.subordinate, way))
        if thread is None:
            thread = derive_subordinate_thread_id(
                identity.thread_id, message.id or "", each.call_id
            )
            latest[each.subordinate, way] = thread
        threads[each.call_id] = thread
        used.setdefault(thread, known.get(thread) or build_head(each.subordinate, way))
    return threads, used
