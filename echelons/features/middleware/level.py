"""`LevelMiddleware`: the middleware of one agent; `CallChain`: their wraps around a call.

A chain knows who has raised an exception first: the error of a middleware is named for it, while
that of the model or the tool goes on as it is. An interrupt that a middleware swallows is its
error, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints

from langchain.agents.middleware.types import AgentMiddleware, OmitFromSchema
from langgraph.channels import EphemeralValue
from langgraph.errors import GraphBubbleUp
from typing_extensions import TypedDict

from echelons.errors import ConfigurationError, EchelonsError, middleware_failed
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import Identity, require_identity
from echelons.langgraph_internals import parent_config
from echelons.text.error_lines import describe_failure
from echelons.text.input_limits import shorten_repr
from echelons.tree.names import PATH_SEPARATOR

_BASE_KEYS = frozenset({"messages", "jump_to", "structured_response"})
"""Keys of LangChain's own state that are no middleware's."""


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
        run = _ChainRun(self._hook, self._read_result, config)

        def enter(place: int, call: Any) -> Any:
            if place == len(self._middleware):
                with run.note_errors(""):
                    return execute(call)
            one, layer = self._middleware[place], _Layer()

            def handle(changed: Any) -> Any:
                layer.signal = None
                try:
                    return enter(place + 1, changed)
                except GraphBubbleUp as signal:
                    layer.signal = signal
                    raise

            # What the innermost handler offers beside the call, each does.
            vars(handle).update(getattr(execute, "__dict__", {}))
            wrap = run.find_form(one, is_async=False)
            with run.note_errors(one.name):
                result = wrap(call, handle)
            return run.leave(one.name, layer, result)

        with run.name_failure():
            return enter(0, request)

    async def arun(
        self, request: Any, execute: Callable[[Any], Awaitable[Any]], config: Mapping[str, Any]
    ) -> Any:
        """Async version of `run`."""
        run = _ChainRun(self._hook, self._read_result, config)

        async def enter(place: int, call: Any) -> Any:
            if place == len(self._middleware):
                with run.note_errors(""):
                    return await execute(call)
            one, layer = self._middleware[place], _Layer()

            async def handle(changed: Any) -> Any:
                layer.signal = None
                try:
                    return await enter(place + 1, changed)
                except GraphBubbleUp as signal:
                    layer.signal = signal
                    raise

            vars(handle).update(getattr(execute, "__dict__", {}))
            wrap = run.find_form(one, is_async=True)
            with run.note_errors(one.name):
                result = await wrap(call, handle)
            return run.leave(one.name, layer, result)

        with run.name_failure():
            return await enter(0, request)


class _Layer:
    """One wrap in one run: the interrupt that its handler has raised last."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal: GraphBubbleUp | None = None


class _ChainRun:
    """One run of a chain: which middleware has raised an exception first."""

    def __init__(
        self, hook: str, read_result: Callable[[Any], Any], config: Mapping[str, Any]
    ) -> None:
        self._hook = hook
        self._read_result = read_result
        self._config = config
        self._raised: list[tuple[Exception, str]] = []
        self._swallower = ""

    def find_form(self, one: AgentMiddleware[Any, Any], *, is_async: bool) -> Any:
        """Return a middleware's method for this kind of run."""
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
