"""Tells an agent which of its subordinates have come or gone, when its model is called next. Pure.

The notice is stored with the reply. What an earlier version has made is told of once; so is what a
repair, a middleware or a memory has taken out of the conversation.
"""

from __future__ import annotations

from collections.abc import Collection

from langchain_core.messages import BaseMessage

from echelons.delegation.roster import build_entry, find_changes, read_roster
from echelons.features.feature import AgentStep
from echelons.features.memory.window import find_summaries, find_window
from echelons.identity.lineage import derive_message_id
from echelons.models.fitting import build_roster_notice
from echelons.models.hidden_messages import leave_out_hidden
from echelons.nodes.planning.final_answer import is_paused
from echelons.nodes.planning.spawn_plan import SpawnPlan, SpawnRules
from echelons.tree.names import PATH_SEPARATOR


def list_roster_notices(
    step: AgentStep, rules: SpawnRules | None, declared: Collection[str]
) -> list[BaseMessage]:
    """Return what an agent has to be told of its subordinates before its model is called.

    Args:
        step: The step that calls it.
        rules: What the agent may spawn; `None` for nothing.
        declared: Names of its declared subordinates.

    Raises:
        UnreadableRecord: Stored summaries are damaged.
    """
    past, state, config = step.past, step.state, step.config
    gate, identity, own = step.gate, step.identity, state["messages"]
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
