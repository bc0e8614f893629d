"""`RunContext`: what a run passes down to its levels, under one key of LangGraph's `configurable`.

Each way into a tree or a level makes the context within from the one around it: `enter_tree` for a
run of a tree by a session, a tool, a function, `as_tool` or an MCP server, and `enter_level` for a
request to a subordinate. Both replace the context in the config of what they enter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from echelons.background_loop import BackgroundLoop
    from echelons.checkpoints.coordination.turns import Turn
    from echelons.delegation.contract import Contract
    from echelons.delegation.join import Races
    from echelons.delegation.request import DelegationRequest
    from echelons.delegation.spawned_agents import SpawnableAgent
    from echelons.guards.budget import Allowance
    from echelons.guards.circuit_breaker import Circuits
    from echelons.guards.gate import Gate
    from echelons.guards.permissions import Grant
    from echelons.guards.prices import Prices
    from echelons.identity.failures import FailureLog
    from echelons.models.notices import View
    from echelons.nodes.tool_execution.journaled_call import DetachedCall
    from echelons.tree.name_themes import NameTheme

CONTEXT_KEY: Final = "__echelons"
"""Config key of the context; LangGraph does not store keys with this prefix."""


# No tuple: LangGraph's `RemoteGraph` sends those to its server, as far as they are plain.
@dataclass(frozen=True, slots=True)
class RunContext:
    """The settings that a run passes down. It is replaced for each level, and never changed.

    Attributes:
        turn: The turn; `None` outside of sessions.
        loop: Runs what is only async in a synchronous run.
        features: The objects that the session opened for features, by their names.
        spawnable: The agents that others may be made after, by name.
        theme: The names for people of spawned agents.
        prices: The costs of models.
        gate: Admits the steps of the agent.
        circuits: The circuit breakers of the tree.
        races: The races of the tree.
        failures: Logs failures.
        contract: The contract of the tree's root.
        request: The request of the agent; `None` for a root.
        read_request: Reads the request of a root from its state, within a call of its tool.
        is_added: Whether the agent was added to its superior's declared subordinates.
        rights: The rights of the agent; `None` for all.
        allowance: The allowance of the agent, if that is not the allowance of the gate.
        deadline: The agent's deadline, by the clock of its run.
        view: How the model of the agent is shown its thread.
        detached_call: The tool call that may outlive its task.
        first_place: The first place of the answers to a call.
        levels_around: The levels of the trees around, those apart that its path names.
        max_depth: The deepest level of an agent, the levels around included.
    """

    turn: Turn | None = None
    loop: BackgroundLoop | None = None
    features: Mapping[str, Any] = field(default_factory=dict)
    spawnable: Mapping[str, SpawnableAgent] = field(default_factory=dict)
    theme: NameTheme | None = None
    prices: Prices | None = None
    gate: Gate | None = None
    circuits: Circuits | None = None
    races: Races | None = None
    failures: FailureLog | None = None
    contract: Contract | None = None
    request: DelegationRequest | None = None
    read_request: Callable[[], DelegationRequest] | None = None
    is_added: bool = False
    rights: Grant | None = None
    allowance: Allowance | None = None
    deadline: float | None = None
    view: View | None = None
    detached_call: DetachedCall | None = None
    first_place: int = 0
    levels_around: int = 0
    max_depth: int = 32

    def enter_tree(self, outer: RunContext, rights: Grant | None) -> RunContext:
        """Return the context of the root of a tree that is run with this one, within `outer`."""
        return replace(
            self,
            # A root's request is its task, which is read from its state.
            request=None,
            read_request=None,
            is_added=False,
            rights=outer._narrow(rights),
            deadline=outer.deadline,
            view=None,
            detached_call=None,
            first_place=0,
        )

    def enter_level(
        self, request: DelegationRequest, rights: Grant | None, *, is_added: bool
    ) -> RunContext:
        """Return the context of a subordinate that is sent a request."""
        return replace(self, request=request, rights=self._narrow(rights), is_added=is_added)

    def _narrow(self, rights: Grant | None) -> Grant | None:
        """Return what is left of rights within those of the context; `None` for all."""
        return self.rights.narrow(rights) if self.rights and rights else rights or self.rights


NO_CONTEXT: Final = RunContext()


def get_context(config: Mapping[str, Any] | None) -> RunContext:
    """Return the context in a run's config; an empty one outside of a tree."""
    try:
        context: RunContext = config["configurable"][CONTEXT_KEY]  # type: ignore[index]
    except (KeyError, TypeError):
        return NO_CONTEXT
    return context


def with_context(config: Mapping[str, Any], context: RunContext) -> RunnableConfig:
    """Return a config with another context."""
    configurable = {**config.get("configurable", {}), CONTEXT_KEY: context}
    return {**config, "configurable": configurable}  # type: ignore[typeddict-item]
