"""LangChain's middleware at a level: its state, its hooks as nodes, and its conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Annotated, Any, NotRequired, Required, cast, get_args, get_origin, get_type_hints

from langchain.agents.middleware.types import AgentMiddleware, OmitFromSchema
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.channels import EphemeralValue
from langgraph.errors import GraphBubbleUp
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.runtime import get_runtime
from langgraph.types import Command
from typing_extensions import TypedDict

from echelons.delegation.mail import get_mailboxes
from echelons.errors import ConfigurationError, EchelonsError, middleware_failed
from echelons.guards.gate import HALT_KEY, Halt, get_gate
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import RETURNED_KEY, Identity, require_identity
from echelons.identity.thread_history import Past, ThreadHistory, build_past_step
from echelons.langgraph_internals import parent_config
from echelons.nodes.base_node import Node
from echelons.nodes.messages import accept_message
from echelons.nodes.planning.relay import build_direct_update, join_parts
from echelons.nodes.planning.tool_calls import assign_call_ids
from echelons.nodes.tool_execution.async_only import arun_function, run_function
from echelons.nodes.tool_execution.current_request import find_payload
from echelons.plans import Plan, PlanStep, arun_plan_steps, run_plan_steps
from echelons.run_context import get_context
from echelons.text.error_lines import describe_failure
from echelons.text.input_limits import shorten_repr
from echelons.tree.names import PATH_SEPARATOR, PRIVATE_KEYS

_BASE_KEYS = frozenset({"messages", "jump_to", "structured_response"})
"""Keys of LangChain's own state that are no middleware's."""
JUMPS = ("model", "tools", "end")
"""Where a hook may jump."""


class HookState(TypedDict):
    """The keys that middleware adds to the state of a level."""

    cut: NotRequired[dict[str, Any] | None]
    jump_to: NotRequired[Annotated[Any, EphemeralValue]]
    # The model has just replied, so the hooks after it run.
    replied: NotRequired[Annotated[bool, EphemeralValue]]
    # Hooks before the model were skipped, as it is not to be called.
    unhooked: NotRequired[Annotated[bool, EphemeralValue]]


class LevelMiddleware:
    """The middleware of one agent, first in the list outermost; what it inherits is included."""

    def __init__(self, agent: str, middleware: Sequence[AgentMiddleware[Any, Any]]) -> None:
        self._agent = agent
        self.every = tuple(middleware)
        self.tools = [tool for one in middleware for tool in getattr(one, "tools", ())]

    def find(self, hook: str) -> list[AgentMiddleware[Any, Any]]:
        """Return those that define a hook, in its sync or its async form."""
        return [layer for layer in self.every if defines(layer, hook) or defines(layer, f"a{hook}")]

    def build_schemas(self, state: Any, input: Any, output: Any) -> tuple[Any, Any, Any]:
        """Return the state, the input and the output of a level with what the middleware adds.

        A subordinate begins each request with what the one before has left, so its input has all
        keys. A root goes on with its own state, and its output has what is not private.
        """
        added = self._collect_state()
        is_root = "previous" not in get_type_hints(state)
        hints = {**added, **get_type_hints(state, include_extras=True)}
        hints |= get_type_hints(HookState, include_extras=True)
        carried = {} if is_root else added
        shown = {key: hint for key, hint in added.items() if is_root and not _is_private(hint)}
        return (
            _build_schema("State", hints),
            _build_schema("Input", {**carried, **get_type_hints(input, include_extras=True)}),
            _build_schema("Output", {**shown, **get_type_hints(output, include_extras=True)}),
        )

    def _collect_state(self) -> dict[str, Any]:
        """Return the types of the state keys that the middleware adds."""
        hints: dict[str, Any] = {}
        for layer in self.every:
            for key, hint in get_type_hints(layer.state_schema, include_extras=True).items():
                if key not in _BASE_KEYS:
                    hints[key] = self._guard_reducer(hint, key, layer.name)
        return hints

    def _guard_reducer(self, hint: Any, key: str, middleware: str) -> Any:
        """Return the type of a state key whose reducer, if it has one, fails as its middleware.

        LangGraph calls a reducer between the tasks of a step, where nothing else names it.
        """
        if get_origin(hint) in (Required, NotRequired):
            return get_origin(hint)[self._guard_reducer(get_args(hint)[0], key, middleware)]
        kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        # As LangGraph decides it: a channel is a class or an object, a reducer a function.
        if not marks or not callable(marks[-1]) or isinstance(marks[-1], type):
            return hint
        reducer = marks[-1]

        @wraps(reducer)
        def reduce(current: Any, update: Any) -> Any:
            try:
                return reducer(current, update)
            except Exception as error:
                config = parent_config.get()
                why = describe_failure(error, "middleware_failed", get_failure_log(config).redactor)
                identity = Identity.from_metadata((config or {}).get("metadata") or {})
                # Around a root there is no config of its own.
                path = PATH_SEPARATOR.join(identity.path) if identity else self._agent
                raise middleware_failed(path, middleware, f"the reducer of {key!r}", why) from error

        return Annotated[(kind, *marks[:-1], reduce)]


def defines(middleware: Any, method: str) -> bool:
    """Return whether a middleware has a method of its own, as LangChain decides it.

    Hooks that are not LangChain's are marked in the base class that declares them.
    """
    method_of_class = getattr(type(middleware), method, None)
    is_declared = method_of_class is getattr(AgentMiddleware, method, None)
    return method_of_class is not None and not (
        is_declared or getattr(method_of_class, "is_empty_hook", False)
    )


def list_names(middleware: Iterable[AgentMiddleware[Any, Any]]) -> str:
    """Return the names of some middleware, for an error."""
    return ", ".join(layer.name for layer in middleware)


def _build_schema(name: str, hints: Mapping[str, Any]) -> Any:
    return TypedDict(name, dict(hints))  # type: ignore[operator]  # made of what the agent has


def _is_private(hint: Any) -> bool:
    """Return whether a state key is left out of the output of a graph."""
    if get_origin(hint) in (Required, NotRequired):
        hint = get_args(hint)[0]
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(mark, OmitFromSchema) and mark.output for mark in marks)


def build_failure(
    config: Mapping[str, Any], middleware: str, hook: str, why: str | Exception
) -> ConfigurationError:
    """Return the error of a middleware, with the path of its agent."""
    if isinstance(why, Exception):
        why = describe_failure(why, "middleware_failed", get_failure_log(config).redactor)
    return middleware_failed(
        PATH_SEPARATOR.join(require_identity(config).path), middleware, hook, why
    )


class CallChain:
    """The wraps of one hook."""

    def __init__(
        self,
        hook: str,
        middleware: Sequence[AgentMiddleware[Any, Any]],
        read_result: Callable[[Any], Any],
    ) -> None:
        self._hook = hook
        self._middleware = middleware
        # Returns the result of a wrap as the wrap around it reads it; `None` for a wrong type.
        self._read_result = read_result

    def run(self, request: Any, execute: Callable[[Any], Any], config: Mapping[str, Any]) -> Any:
        """Run a call through all wraps.

        Raises:
            ConfigurationError: One has raised, has swallowed an interrupt, has returned something
                else, or is only async.
        """
        run = _ChainRun(self._hook, self._read_result, config, run_plan_steps, is_async=False)
        return run_plan_steps(self._plan(run, request, execute))

    async def arun(
        self, request: Any, execute: Callable[[Any], Awaitable[Any]], config: Mapping[str, Any]
    ) -> Any:
        """Async version of `run`."""
        run = _ChainRun(self._hook, self._read_result, config, arun_plan_steps, is_async=True)
        return await arun_plan_steps(self._plan(run, request, execute))

    def _plan(self, run: _ChainRun, request: Any, execute: Callable[[Any], Any]) -> Plan[Any]:
        with run.name_failure():
            return (yield from self._enter(run, 0, request, execute))

    def _enter(
        self, run: _ChainRun, place: int, call: Any, execute: Callable[[Any], Any]
    ) -> Plan[Any]:
        """Run a call through the wraps from a place on."""
        if place == len(self._middleware):
            with run.note_errors(""):
                return (yield _call(execute, call))
        one, layer = self._middleware[place], _Layer()

        def proceed(changed: Any) -> Plan[Any]:
            layer.signal = None
            try:
                return (yield from self._enter(run, place + 1, changed, execute))
            except GraphBubbleUp as signal:
                layer.signal = signal
                raise

        def handle(changed: Any) -> Any:
            return run.drive(proceed(changed))

        # What the innermost handler offers beside the call, each does.
        vars(handle).update(getattr(execute, "__dict__", {}))
        wrap = run.find_form(one)
        with run.note_errors(one.name):
            result = yield _call(wrap, call, handle)
        return run.leave(one.name, layer, result)


def _call(function: Callable[..., Any], *arguments: Any) -> PlanStep:
    """Return the call of a function that is of the world in which the plan is driven."""
    call = partial(function, *arguments)
    return PlanStep(call, call)


class _Layer:
    """One wrap in one run: the interrupt that its handler has raised last."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal: GraphBubbleUp | None = None


class _ChainRun:
    """One run of a chain: which middleware has raised an exception first."""

    def __init__(
        self,
        hook: str,
        read_result: Callable[[Any], Any],
        config: Mapping[str, Any],
        drive: Callable[[Plan[Any]], Any],
        *,
        is_async: bool,
    ) -> None:
        self.drive = drive
        self._is_async = is_async
        self._hook = hook
        self._read_result = read_result
        self._config = config
        self._raised: list[tuple[Exception, str]] = []
        self._swallower = ""

    def find_form(self, one: AgentMiddleware[Any, Any]) -> Any:
        """Return a middleware's method for this kind of run."""
        is_async = self._is_async
        name = f"a{self._hook}" if is_async else self._hook
        if defines(one, name):
            return getattr(one, name)
        kind = "an async" if is_async else "a synchronous"
        other = self._hook if is_async else f"a{self._hook}"
        raise self._fail(one.name, f"it defines {other}, and {kind} run needs {name}; define both")

    @contextmanager
    def note_errors(self, name: str) -> Iterator[None]:
        """Note who raises an exception in the block, unless it comes from further in."""
        try:
            yield
        except Exception as error:
            if all(error is not noted for noted, _ in self._raised):
                self._raised.append((error, name))
            raise

    def leave(self, name: str, layer: _Layer, result: Any) -> Any:
        """Return the result of a wrap for the one around it.

        Raises:
            GraphBubbleUp: The wrap has swallowed it.
            ConfigurationError: The result is of a wrong type.
        """
        if layer.signal is not None:
            self._swallower = self._swallower or name
            raise layer.signal
        if (read := self._read_result(result)) is None:
            raise self._fail(name, f"it returned {shorten_repr(result)}, which is no response")
        return read

    @contextmanager
    def name_failure(self) -> Iterator[None]:
        """Raise the exception of a middleware as an error of ours."""
        try:
            yield
        except Exception as error:
            if named := self._describe(error):
                raise named from error
            raise

    def _describe(self, error: Exception) -> ConfigurationError | None:
        """Return the error that names a middleware for an exception, `None` if none is to blame."""
        if isinstance(error, GraphBubbleUp):
            why = f"it swallowed {type(error).__name__}; let GraphBubbleUp pass"
            return self._fail(self._swallower, why) if self._swallower else None
        if isinstance(error, EchelonsError):
            return None
        name = next((name for noted, name in self._raised if noted is error), "")
        return build_failure(self._config, name, self._hook, error) if name else None

    def _fail(self, name: str, why: str) -> ConfigurationError:
        return build_failure(self._config, name, self._hook, why)


def build_hook_state(
    past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a level's state as a hook sees it: all messages of the thread, and its input."""
    shown = {key: value for key, value in state.items() if key not in PRIVATE_KEYS}
    payload = find_payload(config, state["messages"])
    # A text that is no input, which a graph around the tree may give, has none.
    if payload is not None or get_context(config).contract:
        shown["payload"] = payload
    return {**shown, "messages": [*past.messages, *state["messages"]]}


def find_foreign_key(update: Mapping[str, Any], keys: frozenset[str]) -> str:
    """Return the first key of an update that others must not write; empty if there is none."""
    return next((str(key) for key in update if key in PRIVATE_KEYS or key not in keys), "")


def change_conversation(
    messages: Any, past: Past, state: Mapping[str, Any], added: Sequence[BaseMessage] = ()
) -> dict[str, Any]:
    """Return the update of a level for what a hook has returned under `messages`.

    Raises:
        NotImplementedError, ValueError: LangChain cannot convert it to messages.
    """
    before = [*past.messages, *state["messages"], *added]
    ids = {message.id for message in before}
    new = [_complete(message, ids) for message in convert_to_messages(_list_messages(messages))]
    removes = any(isinstance(message, RemoveMessage) for message in new)
    earlier = {message.id for message in past.messages}
    if not removes and earlier.isdisjoint(message.id for message in new):
        return {"messages": [*added, *new]}
    held = {message.id for message in (*before, *new)} | {REMOVE_ALL_MESSAGES}
    # LangGraph refuses to remove a message that is not there.
    real = [
        message for message in new if not isinstance(message, RemoveMessage) or message.id in held
    ]
    after: list[Any] = [*cast("list[Any]", add_messages(cast("Any", before), cast("Any", real)))]
    left = {message.id for message in after}
    gone = sum(message.id not in left for message in before)
    cut = state.get("cut") or {}
    is_past_kept = after[: len(past.messages)] == list(past.messages)
    noted = {
        "removed": int(cut.get("removed", 0)) + gone,
        "past": bool(cut.get("past")) or not is_past_kept,
    }
    if is_past_kept:
        return {"messages": [*added, *new], "cut": noted}
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *after], "cut": noted}


def get_command_update(command: Command[Any]) -> Mapping[str, Any] | None:
    """Return the update of a command that only updates the state, `None` of any other."""
    if command.graph or command.goto or command.resume is not None:
        return None
    update = command.update
    return {} if update is None else update if isinstance(update, Mapping) else None


def _list_messages(messages: Any) -> list[Any]:
    """Return what a hook gives as messages as a list; a pair of a role and a text is one."""
    is_pair = isinstance(messages, tuple) and len(messages) == 2 and isinstance(messages[0], str)
    return [*messages] if isinstance(messages, list | tuple) and not is_pair else [messages]


def mark_returned(message: AIMessage) -> AIMessage:
    """Return a message of an agent with the mark that no model has written it."""
    metadata = {**message.response_metadata, RETURNED_KEY: True}
    return message.model_copy(update={"response_metadata": metadata})


def _complete(message: BaseMessage, ids: Collection[str | None]) -> BaseMessage:
    whole = accept_message(message, {})
    if not isinstance(whole, AIMessage):
        return whole
    whole = assign_call_ids(whole)
    return whole if whole.id in ids else mark_returned(whole)


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
        # Whether tools have given the answer, so that the model will not be called.
        tools = self._direct_tools
        if bool(
            tools
            and self._hook == "before_model"
            and build_direct_update(joined.state["messages"], tools, require_identity(config))
        ):
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
