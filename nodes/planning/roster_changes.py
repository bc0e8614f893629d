"""Tells an agent which of its subordinates have come or gone, when its model is called next. Pure.

The notice is stored with the reply. What an earlier version has made is told of once; so is what a
repair, a middleware or a memory has taken out of the conversation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from langchain_core.messages import BaseMessage

from echelons.delegation.roster import build_entry, find_changes, read_roster
from echelons.guards.gate import get_gate
from echelons.identity.lineage import derive_message_id, require_identity
from echelons.identity.thread_history import Past
from echelons.models.hidden_messages import leave_out_hidden
from echelons.models.roster_notice import build_roster_notice
from echelons.nodes.memory.window import find_summaries, find_window
from echelons.nodes.planning.final_answer import is_paused
from echelons.nodes.planning.spawn_plan import SpawnPlan, SpawnRules
from echelons.tree.names import PATH_SEPARATOR


def list_roster_notices(
    past: Past,
    state: Mapping[str, Any],
    rules: SpawnRules | None,
    declared: Collection[str],
    config: Mapping[str, Any],
) -> list[BaseMessage]:
    """Return what an agent has to be told of its subordinates before its model is called.

    Args:
        past: Its earlier segments.
        state: The present one.
        rules: What it may spawn; `None` for nothing.
        declared: Names of its declared subordinates.
        config: The config of its node.

    Raises:
        UnreadableRecord: Stored summaries are damaged.
    """
    gate, identity, own = get_gate(config), require_identity(config), state["messages"]
    below = gate.dismissals.list_below(PATH_SEPARATOR.join(identity.path))
    dismissed = [name for name in declared if name in below]
    plan = SpawnPlan.build(rules, past, state, config) if rules else None
    if not (dismissed or (plan and plan.known)) or is_paused(own):
        return []
    shown = leave_out_hidden([*past.messages, *own], gate.hidden_messages)
    summaries = find_summaries(shown)
    segment = identity.request_id or identity.turn
    known = read_roster(shown[find_window(shown, summaries) :], segment, summaries.roster)
    spawned = plan.living if plan else {}
    living = {
        name: build_entry(spec.stored(), stays=spec.segment != segment)
        for name, spec in spawned.items()
    }
    if not (changes := find_changes(known, living, dismissed)):
        return []
    latest = next((message.id for message in reversed(own) if message.id), "")
    return [build_roster_notice(changes, derive_message_id(identity.thread_id, f"roster/{latest}"))]
