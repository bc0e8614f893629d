"""`CallChain`: the wraps of some middleware around a call, the first outermost.

Knows who has raised an exception first: the error of a middleware is named for it, while that of
the model or the tool goes on as it is. An interrupt that a middleware swallows is its error, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware
from langgraph.errors import GraphBubbleUp

from echelons.errors import ConfigurationError, EchelonsError, middleware_failed
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import require_identity
from echelons.nodes.middleware.level_middleware import defines
from echelons.text.error_lines import describe_failure
from echelons.text.input_limits import shorten_repr
from echelons.tree.names import PATH_SEPARATOR


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
    """The wraps of one hook.

    Args:
        hook: The hook, `"wrap_model_call"` or `"wrap_tool_call"`.
        middleware: Those that define it.
        read_result: Returns what a wrap has returned in the form for the wrap around it, or `None`
            if it is of a wrong type.
    """

    def __init__(
        self,
        hook: str,
        middleware: Sequence[AgentMiddleware[Any, Any]],
        read_result: Callable[[Any], Any],
    ) -> None:
        self._hook = hook
        self._middleware = middleware
        self._read_result = read_result

    def run(self, request: Any, execute: Callable[[Any], Any], config: Mapping[str, Any]) -> Any:
        """Run a call through all wraps.

        Raises:
            ConfigurationError: One has raised, has swallowed an interrupt, has returned something
                else, or is only async.
        """
        run = _ChainRun(self._hook, self._read_result, config)

        def enter(place: int, given: Any) -> Any:
            if place == len(self._middleware):
                with run.note_errors(""):
                    return execute(given)
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
                result = wrap(given, handle)
            return run.leave(one.name, layer, result)

        with run.name_failure():
            return enter(0, request)

    async def arun(
        self, request: Any, execute: Callable[[Any], Awaitable[Any]], config: Mapping[str, Any]
    ) -> Any:
        """Async version of `run`."""
        run = _ChainRun(self._hook, self._read_result, config)

        async def enter(place: int, given: Any) -> Any:
            if place == len(self._middleware):
                with run.note_errors(""):
                    return await execute(given)
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
                result = await wrap(given, handle)
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
            if all(error is not known for known, _ in self._raised):
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
        name = next((name for known, name in self._raised if known is error), "")
        return build_failure(self._config, name, self._hook, error) if name else None

    def _fail(self, name: str, why: str) -> ConfigurationError:
        return build_failure(self._config, name, self._hook, why)
