"""Which thread of a subordinate a call goes on with, or starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_core.messages import AIMessage

from echelons.delegation.calls import Delegation
from echelons.identity.lineage import Identity, subordinate_thread_id
from echelons.identity.thread_history import Head, head_of


def resolve(
    delegations: Sequence[Delegation],
    ways: Mapping[str, str],
    known: Mapping[str, Head],
    message: AIMessage,
    identity: Identity,
) -> tuple[dict[str, str], dict[str, Head]]:
    """Decide which thread each call runs on, in call order.

    A call with ``reset`` starts a thread. One without takes the subordinate's latest
    thread, those started earlier in the same message counted, or starts its first. What it
    only passes on has a thread for each agent that it is for: on one thread, two requests for
    two agents below it would wait for each other.

    Args:
        delegations: The calls.
        ways: For whom further down some of them are, see ``Head``, by call id.
        known: The threads there are, in the order of their start.
        message: The message that holds the calls.
        identity: Who calls.

    Returns:
        Thread ids by call id, and the entry of each of these threads for the state.
    """
    latest = {(head["agent"], head.get("way", "")): thread for thread, head in known.items()}
    threads: dict[str, str] = {}
    used: dict[str, Head] = {}
    for each in delegations:
        way = ways.get(each.call_id, "")
        thread = None if each.reset else latest.get((each.subordinate, way))
        if thread is None:
            thread = subordinate_thread_id(identity.thread_id, message.id or "", each.call_id)
            latest[each.subordinate, way] = thread
        threads[each.call_id] = thread
        used.setdefault(thread, known.get(thread) or head_of(each.subordinate, way))
    return threads, used
