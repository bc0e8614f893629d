"""`LevelMiddleware`: the middleware of one agent, sorted by what each defines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints

from langchain.agents.middleware.types import AgentMiddleware, OmitFromSchema
from langgraph.channels import EphemeralValue
from typing_extensions import TypedDict

from echelons.errors import middleware_failed
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import parent_config
from echelons.text.error_lines import describe_failure
from echelons.tree.names import PATH_SEPARATOR

_BASE_KEYS = frozenset({"messages", "jump_to", "structured_response"})
"""Keys of LangChain's own state that are no middleware's."""


class HookState(TypedDict):
    """What the state of a level has beside its own keys, where the agent has middleware.

    Attributes:
        cut: What hooks have taken out of the conversation, if they have.
        jump_to: Where a hook has jumped.
        replied: Whether the model has just replied, so that the hooks after it run.
        unhooked: Whether hooks before the model were skipped, as it is not to be called.
    """

    cut: NotRequired[dict[str, Any] | None]
    jump_to: NotRequired[Annotated[Any, EphemeralValue]]
    replied: NotRequired[Annotated[bool, EphemeralValue]]
    unhooked: NotRequired[Annotated[bool, EphemeralValue]]


class LevelMiddleware:
    """The middleware of one agent, first in the list outermost; what it inherits is included.

    Args:
        agent: Name of the agent.
        given: Its middleware.
    """

    def __init__(self, agent: str, given: Sequence[AgentMiddleware[Any, Any]]) -> None:
        self._agent = agent
        self.every = tuple(given)
        self.tools = [each for one in given for each in getattr(one, "tools", ())]

    def find(self, hook: str) -> list[AgentMiddleware[Any, Any]]:
        """Return those that define a hook, in its sync or its async form."""
        return [each for each in self.every if defines(each, hook) or defines(each, f"a{hook}")]

    def build_schemas(self, state: Any, given: Any, output: Any) -> tuple[Any, Any, Any]:
        """Return the state, the input and the output of a level with what the middleware adds.

        A subordinate begins each request with what the one before has left, so its input has all
        keys. A root goes on with its own state, and its output has what is not private.
        """
        added = self._collect_state()
        is_root = "previous" not in get_type_hints(state)
        hints = {**added, **get_type_hints(state, include_extras=True)}
        hints |= get_type_hints(HookState, include_extras=True)
        carried = {} if is_root else added
        told = {key: each for key, each in added.items() if is_root and not _is_private(each)}
        return (
            _build_schema("State", hints),
            _build_schema("Input", {**carried, **get_type_hints(given, include_extras=True)}),
            _build_schema("Output", {**told, **get_type_hints(output, include_extras=True)}),
        )

    def _collect_state(self) -> dict[str, Any]:
        """Return the types of the state keys that the middleware adds."""
        found: dict[str, Any] = {}
        for each in self.every:
            for key, hint in get_type_hints(each.state_schema, include_extras=True).items():
                if key not in _BASE_KEYS:
                    found[key] = self._guard_reducer(hint, key, each.name)
        return found

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
    own = getattr(type(middleware), method, None)
    is_declared = own is getattr(AgentMiddleware, method, None)
    return own is not None and not (is_declared or getattr(own, "is_empty_hook", False))


def list_names(middleware: Iterable[AgentMiddleware[Any, Any]]) -> str:
    """Return the names of some middleware, for an error."""
    return ", ".join(each.name for each in middleware)


def _build_schema(name: str, hints: Mapping[str, Any]) -> Any:
    return TypedDict(name, dict(hints))  # type: ignore[operator]  # made of what the agent has


def _is_private(hint: Any) -> bool:
    """Return whether a state key is left out of the output of a graph."""
    if get_origin(hint) in (Required, NotRequired):
        hint = get_args(hint)[0]
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(each, OmitFromSchema) and each.output for each in marks)
