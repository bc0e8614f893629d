"""The features, in the order of their hooks: the first stands outermost.

The registry names features and imports none: an agent's field, a stored record or a command that
needs a feature has it loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from echelons.tree.members import walk_tree

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from echelons.agent import Agent
    from echelons.checkpoints.ledger import Transaction
    from echelons.delegation.policy import DelegationPolicy
    from echelons.features.feature import (
        AgentHooks,
        AttemptHooks,
        Feature,
        GateScope,
        Place,
        RequestPlace,
        RunHooks,
        RunScope,
    )
    from echelons.guards.gate import StepGuard
    from echelons.tree.agent_registry import AgentKind

Made: TypeAlias = "Mapping[Feature, Any]"
"""What features make of a tree, see `Feature.compile`."""


class Entry(NamedTuple):
    """A feature by its name, which is that of its folder."""

    name: str
    # The field of an agent without which it is not needed; empty if it may always be.
    field: str = ""
    # The commands of its module `commands`, if it has one.
    commands: str = ""


FEATURES: Final[tuple[Entry, ...]] = (
    # Outermost around an attempt: what it claims is known before a person is asked about it. Around
    # a step its warnings come before messages, which may have been sent since.
    Entry("budget"),
    # Before the attempt is admitted: what waits for a person must not be counted yet.
    Entry("approvals"),
    # A message that has come in meanwhile is read even where the reply would end the segment, so
    # whatever else a step adds for the model stands within.
    Entry("mail", commands="steer message"),
    # The latest notice of the subordinates stands last in what the model reads.
    Entry("spawning"),
    # Within approvals: a person has the whole time from when the request is approved. The order in
    # which models read tools is that of `tree.names.SHOWN_TOOLS`.
    Entry("questions", commands="inbox answer"),
    # The gate asks for its order before any guard admits a step, so a dismissed agent reserves
    # nothing of a budget and gets no name, wherever this stands.
    Entry("dismissal", commands="dismiss"),
    # After the budget: an agent that cannot begin gets no name.
    Entry("aliases"),
    # Inside all others: it shortens what all others show a model.
    Entry("memory", "memory"),
    # They work beside a run and only read it: no hook of theirs stands around a step or in the
    # gate, so only the commands that list members see their place.
    Entry("monitors", "monitors"),
    # Its tools are those that an agent declares, as middleware, approvals and the journal see any
    # other: the feature adds records and what a session provides for them, and no hooks.
    Entry("workspace", commands="changes merge discard"),
    # As the workspace: tools that agents declare, records, and what a session provides for them.
    Entry("notes"),
    # Middleware has no entry: its order is that of an agent's list. `graphs.level_graph` puts it
    # outermost around requests, as what it sends again is another request with its own grants, and
    # innermost around model calls, where it reads the whole prompt that the model is to read.
)


@cache
def load_feature(name: str) -> Feature:
    """Return a feature, which is the object `FEATURE` of its folder's module `feature`."""
    feature: Feature = import_module(f"echelons.features.{name}.feature").FEATURE
    return feature


def list_features() -> list[Feature]:
    """Return all features, in their order."""
    return [load_feature(entry.name) for entry in FEATURES]


def bind_features(place: Place) -> list[AgentHooks]:
    """Return what all features do at the steps of an agent, in their order."""
    bound = [
        load_feature(entry.name).bind(place)
        for entry in FEATURES
        if not entry.field or getattr(place.agent, entry.field)
    ]
    return [hooks for hooks in bound if hooks is not None]


def bind_requests(place: RequestPlace) -> list[AttemptHooks]:
    """Return what all features do at the requests to a subordinate, in their order."""
    bound = [feature.bind_request(place) for feature in list_features()]
    return [hooks for hooks in bound if hooks is not None]


def open_guards(run: GateScope) -> list[StepGuard]:
    """Return what all features decide in the gate of a run, in their order."""
    guards = [feature.guard(run) for feature in list_features()]
    return [guard for guard in guards if guard is not None]


def compile_features(
    root: Agent, models: Mapping[str, Any], policies: Mapping[str, DelegationPolicy]
) -> Made:
    """Return what the features that a tree uses make of it."""
    made: dict[Feature, Any] = {}
    for entry in FEATURES:
        members = (place.member for place in walk_tree(root))
        if not entry.field or any(getattr(member, entry.field, None) for member in members):
            feature = load_feature(entry.name)
            if result := feature.compile(root, models, policies):
                made[feature] = result
    return made


def provide_features(saver: BaseCheckpointSaver[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the runs of a session find of features, by their names, as are the options."""
    provided = {
        feature.name: feature.provide(saver, options.get(feature.name))
        for feature in list_features()
    }
    return {name: value for name, value in provided.items() if value is not None}


def open_features(run: RunScope) -> list[RunHooks]:
    """Return what features do beside a run of a session, in their order."""
    return [feature.open(run, result) for feature, result in run.graph.made.items()]


def find_members(open_: Transaction, thread_id: str, turn: str) -> dict[str, AgentKind]:
    """Return the members that features have had work beside a turn, by path."""
    members: dict[str, AgentKind] = {}
    for feature in list_features():
        members |= feature.find_members(open_, thread_id, turn)
    return members
