"""The nodes of a level that run the hooks of its middleware, and the edges after them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import get_runtime
from langgraph.types import Command

from echelons.errors import EchelonsError
from echelons.features.middleware.conversation import (
    build_hook_state,
    change_conversation,
    find_foreign_key,
    get_command_update,
)
from echelons.features.middleware.level import build_failure, defines
from echelons.guards.gate import HALT_KEY, Halt, get_gate
from echelons.guards.mailboxes import get_mailboxes
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import Past, ThreadHistory, build_past_step
from echelons.nodes.base_node import Node
from echelons.nodes.planning.join_results import join_parts
from echelons.nodes.planning.segment_end import build_direct_update
from echelons.nodes.tool_execution.async_only import arun_function, run_function
from echelons.plans import Plan, PlanStep, arun_plan_steps, run_plan_steps
from echelons.text.input_limits import shorten_repr

JUMPS = ("model", "tools", "end")
"""Where a hook may jump."""


class HookNode(Node):
    """The node of one hook of one middleware."""

    def __init__(
        self,
        middleware: AgentMiddleware[Any, Any],
        hook: str,
        history: ThreadHistory,
        state_keys: frozenset[str],
        direct_tools: frozenset[str] = frozenset(),
    ) -> None:
        self.node_name = f"{middleware.name}.{hook}"
        super().__init__(self.node_name)
        self._owner = middleware.name
        self._hook = hook
        self._history = history
        self._state_keys = state_keys
        # Tools whose results are the agent's answer.
        self._direct_tools = direct_tools
        forms = [form for form in (hook, f"a{hook}") if defines(middleware, form)]
        self._sync: Any = getattr(middleware, forms[0])
        self._async: Any = getattr(middleware, forms[-1])
        marks = (getattr(form, "__can_jump_to__", ()) for form in (self._sync, self._async))
        self.jumps: tuple[str, ...] = tuple(next(filter(None, marks), ()))

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the hook and return its update."""
        return run_plan_steps(self._plan(input, config or {}))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        return await arun_plan_steps(self._plan(input, config or {}))

    def _plan(self, input: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        joined = join_parts(input, require_identity(config))
        if self._comes_before_no_model(joined.state, config):
            mailboxes = get_mailboxes(get_gate(config))
            read = PlanStep(partial(mailboxes.read, config), partial(mailboxes.aread, config))
            # What was said to the agent meanwhile, its model has to read.
            if not (mailboxes.has_mail and (yield read)):
                return {"unhooked": True}
        past: Past = yield build_past_step(self._history, input.get("previous"), config)
        past = past.hide_cut(input)
        state, runtime = build_hook_state(past, joined.state, config), get_runtime()
        hook = partial(self._sync, state, runtime), partial(self._async, state, runtime)
        try:
            done = yield PlanStep(
                partial(run_function, hook[0], config), partial(arun_function, hook[1], config)
            )
        except Exception as error:
            raise self._name_failure(error, config) from error
        update = self._read(done, past, joined.state, config)
        return joined.rebase_update(update) if update else {}

    def _comes_before_no_model(self, state: Mapping[str, Any], config: RunnableConfig) -> bool:
        """Return whether tools have given the answer, so that the model will not be called."""
        tools = self._direct_tools
        return bool(
            tools
            and self._hook == "before_model"
            and build_direct_update(state["messages"], tools, require_identity(config))
        )

    def _read(
        self, done: Any, past: Past, state: Mapping[str, Any], config: RunnableConfig
    ) -> dict[str, Any]:
        """Return the update of the level for what the hook has returned."""
        if done is None or isinstance(done, Halt):
            # `reason` asks the gate again, and ends.
            return {}
        update = get_command_update(done) if isinstance(done, Command) else done
        if not isinstance(update, Mapping):
            raise self._fail(f"it returned {shorten_repr(done)}, which is no update", config)
        changes = dict(update)
        jump = changes.pop("jump_to", None)
        if foreign := find_foreign_key(changes, self._state_keys):
            why = f"it updates {foreign!r}, which is not in the state; declare it in state_schema"
            raise self._fail(why, config)
        if "messages" in changes:
            try:
                changes |= change_conversation(changes["messages"], past, state)
            except (NotImplementedError, TypeError, ValueError) as error:
                raise self._fail(error, config) from error
        if jump is not None:
            changes |= self._read_jump(jump, state, config)
        return changes

    def _read_jump(
        self, jump: Any, state: Mapping[str, Any], config: RunnableConfig
    ) -> dict[str, Any]:
        if jump not in JUMPS:
            listed = ", ".join(map(repr, JUMPS))
            raise self._fail(f"it jumps to {shorten_repr(jump)}; give {listed}", config)
        if jump not in self.jumps:
            why = (
                f"it jumps to {jump!r} undeclared; decorate it @hook_config(can_jump_to=[{jump!r}])"
            )
            raise self._fail(why, config)
        if is_halted(state):
            return {}
        # A report that the agent has made would end it nevertheless.
        back = {"response": None} if jump != "end" and state.get("response") else {}
        return {"jump_to": jump, **back}

    def _name_failure(self, error: Exception, config: RunnableConfig) -> Exception:
        if isinstance(error, GraphBubbleUp | EchelonsError):
            raise error
        return self._fail(error, config)

    def _fail(self, why: str | Exception, config: RunnableConfig) -> EchelonsError:
        return build_failure(config, self._owner, self._hook, why)


class HookEdge(Node):
    """The edge after the node of a hook: where it has jumped, or the next step."""

    def __init__(
        self, name: str, onward: str | Node, loop: str, exit_node: str, sends: Node
    ) -> None:
        super().__init__(f"after_{name}")
        self._onward = onward
        self._loop = loop
        self._exit = exit_node
        self._sends = sends

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the sends, or the name of the next node."""
        match input.get("jump_to"):
            case "model":
                return self._loop
            case "end":
                return self._exit
            case "tools":
                return self._sends.invoke(input, config)
        if isinstance(self._onward, str):
            return self._onward
        return self._onward.invoke(input, config)


def is_halted(state: Mapping[str, Any]) -> bool:
    """Return whether a segment has been ended from outside, such as by a limit."""
    last = state["messages"][-1] if state["messages"] else None
    response = state.get("response") or {}
    return HALT_KEY in response or (last is not None and HALT_KEY in last.response_metadata)
