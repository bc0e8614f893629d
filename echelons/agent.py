"""`Agent`: one agent and its subordinates, as plain immutable data.

`subordinate` gives a name, a description and capabilities to what is no `Agent`.

`Agent.compile` is the only place where the domain imports LangGraph (through
`echelons.graphs`), and it does so only when called.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from echelons.capabilities.capability import Capability, check_capabilities
from echelons.delegation.contract import Contract, get_inputs
from echelons.delegation.policy import DelegationPolicy
from echelons.errors import (
    ConfigurationError,
    duplicate_name,
    invalid_field,
    invalid_name,
    invalid_subordinate,
    unknown_tool,
)
from echelons.features.memory.settings import Memory, check_memory
from echelons.features.monitors.settings import Monitor, check_monitors
from echelons.guards.limits import Limits
from echelons.guards.permissions import NO_PERMISSIONS, Permissions
from echelons.prompts import GUIDANCE_PARTS
from echelons.text.error_lines import Redactor, redact_secrets
from echelons.text.input_limits import list_items, read_text, refuse_unreadable
from echelons.tree.members import (
    Member,
    adopt_member,
    adopt_members,
    check_tree,
    create_empty_capabilities,
)
from echelons.tree.name_themes import NameTheme, check_theme
from echelons.tree.names import (
    ASK,
    EARLIER_TOOLS,
    PRIVATE_KEYS,
    RESERVED_TOOLS,
    SHOWN_TOOLS,
    check_name,
    get_provider_tool_name,
)
from echelons.tree.permission_rules import check_permissions

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import SystemMessage
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore
    from pydantic import BaseModel

    from echelons.graphs.compiled_tree import AgentGraph
    from echelons.tree.agent_registry import Drawing

    PromptText: TypeAlias = str | SystemMessage
    ModelChoice: TypeAlias = Callable[..., BaseChatModel | str | Awaitable[BaseChatModel | str]]
    PromptFunction: TypeAlias = Callable[..., PromptText | Awaitable[PromptText]]


class _Compiled:
    """The place of what was compiled of an object, which is neither copied nor pickled with it."""

    __slots__ = ("compiled",)


@dataclass(frozen=True, slots=True, eq=False)
class Agent(_Compiled):
    """An agent: its model, tools, capabilities and subordinates.

    An agent is immutable and validated on construction. Its lists and mappings are copied, so
    later changes to the originals have no effect; models and tools are shared.

    Args:
        name: A letter, then up to 63 letters, digits, `-` or `_`; unique in its tree.
        description: Its purpose in a sentence. Its superior's model reads it.
        model: A LangChain chat model, a name such as `"openai:gpt-5-mini"` or, with the extra
            `models`, `"anthropic:claude-sonnet-4-5"`, a function as for `prompt` that returns one
            of these before each call, or `None` to use the superior's. A root without a model uses
            the offline planner.
        prompt: Instructions for its own model: a text, a `SystemMessage`, or a function, sync or
            async, of the state, or of the state and LangGraph's `Runtime`, that returns one before
            each model call. The state has the `messages` of the agent's whole thread.
        guidance: The text that its model reads after that, in place of the library's own text about
            superiors, subordinates and reports; `""` for nothing, `None` for what its superior has.
            A mapping replaces some of its parts by name: `identity`, `superior`, `subordinates`,
            `reports`, `questions`, `results`, `output`.
        tools: LangChain tools, functions with a docstring, or tools that the model's provider
            runs, as dicts such as `{"type": "web_search"}`.
        builtin_tools: Names of the library's own tools that its model is shown, of those that its
            place makes possible; `None` for those that it needs.
        subordinates: Agents, compiled trees, which stand for their agents, compiled LangGraph
            graphs, Runnables, or functions that take the message; see `subordinate`.
        capabilities: Its capabilities by name: a confidence from 0 to 1, or a `Capability`,
            which has example tasks too.
        limits: Limits of the tree under this agent. Only a root may set others than `depth`.
        delegation: How it selects and calls its subordinates; `None` inherits its superior's.
        permissions: The actions that it and all below it may take without a human; a subordinate's
            own can only narrow them.
        middleware: Instances of LangChain's `AgentMiddleware`, the first outermost (needs
            `pip install "echelons[middleware]"`).
        inherit_middleware: Whether its superior's middleware is around its own.
        memory: How much of a long conversation its model reads; `None` for all of it.
        contract: The types of its input and its output; `None` for plain text.
        response_format: Short for a contract with this output alone.
        monitors: A `Monitor` for each that reads what the agent, or one below it, does.
        theme: The names for people that agents get which are spawned in its tree: `"birds"`,
            `"islands"`, `"minerals"`, `"rivers"`, `"stars"`, `"trees"`, a file with a name on each
            line, or a `NameTheme`. That of the root counts.

    Raises:
        ConfigurationError: An argument is invalid; the subclass says which.

    Examples:
        >>> eat = Agent("restaurants", "Finds places to eat", capabilities={"food": 0.9})
        >>> head = Agent("head", "Plans trips", subordinates=[eat])
        >>> [sub.name for sub in head.subordinates]
        ['restaurants']
        >>> Agent("head", subordinates=[eat, eat])
        Traceback (most recent call last):
        ...
        echelons.errors.ConfigurationError: the name 'restaurants' stands more than once ...
    """

    name: str
    description: str = ""
    model: BaseChatModel | str | ModelChoice | None = field(default=None, kw_only=True)
    prompt: PromptText | PromptFunction = field(default="", kw_only=True)
    tools: Sequence[Any] = field(default=(), kw_only=True)
    subordinates: tuple[Member, ...] = field(default=(), kw_only=True)
    capabilities: Mapping[str, float] = field(
        default_factory=create_empty_capabilities, kw_only=True
    )
    limits: Limits = field(default=Limits(), kw_only=True)
    delegation: DelegationPolicy | None = field(default=None, kw_only=True)
    permissions: Permissions = field(default=NO_PERMISSIONS, kw_only=True)
    guidance: str | Mapping[str, str] | None = field(default=None, kw_only=True)
    middleware: Sequence[Any] = field(default=(), kw_only=True)
    inherit_middleware: bool = field(default=False, kw_only=True)
    memory: Memory | None = field(default=None, kw_only=True, metadata={"check": check_memory})
    contract: Contract | None = field(default=None, kw_only=True)
    response_format: type[BaseModel] | None = field(default=None, kw_only=True)
    theme: NameTheme | None = field(default=None, kw_only=True)
    monitors: tuple[Monitor, ...] = field(
        default=(), kw_only=True, metadata={"check": check_monitors}
    )
    builtin_tools: Sequence[str] | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:
        # The arguments accepted are wider than the types of the fields.
        def __init__(  # noqa: PLR0913
            self,
            name: str,
            description: str = "",
            *,
            model: BaseChatModel | str | ModelChoice | None = None,
            prompt: PromptText | PromptFunction = "",
            tools: Sequence[Any] = (),
            subordinates: Sequence[Any] = (),
            capabilities: Mapping[str, float] | Mapping[str, Capability | float] = ...,
            limits: Limits = ...,
            delegation: DelegationPolicy | None = None,
            permissions: Permissions = ...,
            guidance: str | Mapping[str, str] | None = None,
            middleware: Sequence[AgentMiddleware[Any, Any]] = (),
            inherit_middleware: bool = False,
            memory: Memory | None = None,
            contract: Contract | None = None,
            response_format: type[BaseModel] | None = None,
            theme: NameTheme | str | Path | None = None,
            monitors: Sequence[Monitor] = (),
            builtin_tools: Sequence[str] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        keep = object.__setattr__
        keep(self, "name", check_name(self.name))
        for name, value in _check_fields(self):
            keep(self, name, value)
        with refuse_unreadable(lambda _: invalid_field(self.name, "model", self.model, MODELS)):
            model = self.model
            named = isinstance(model, str) and model.strip()
            # A model class has all the methods too, but is not an instance.
            usable = not isinstance(model, type) and (
                callable(getattr(model, "bind_tools", None)) or bind_state(model)
            )
            if not (model is None or named or usable):
                raise invalid_field(self.name, "model", model, MODELS)
        with refuse_unreadable(lambda _: invalid_field(self.name, "prompt", self.prompt, PROMPTS)):
            keep(self, "prompt", _check_prompt(self.name, self.prompt))
        with refuse_unreadable(lambda _: invalid_field(self.name, "guidance", "…", GUIDANCE)):
            keep(self, "guidance", _check_guidance(self.name, self.guidance))
        with refuse_unreadable(lambda _: unknown_tool(self.name, self.tools)):
            keep(self, "tools", _check_tools(self.name, self.tools))
        with refuse_unreadable(lambda _: invalid_field(self.name, "builtin_tools", "…", BUILT_IN)):
            keep(self, "builtin_tools", _check_built_in(self.name, self.builtin_tools))
        with refuse_unreadable(lambda _: invalid_field(self.name, "middleware", "…", MIDDLEWARE)):
            keep(self, "middleware", _check_middleware(self))
        keep(self, "contract", _check_contract(self))
        keep(self, "response_format", self.contract.output if self.contract else None)
        keep(self, "theme", check_theme(self.theme))
        keep(self, "capabilities", check_capabilities(self.name, self.capabilities))
        subordinates = self.subordinates
        with refuse_unreadable(lambda why: invalid_subordinate(self.name, subordinates, why)):
            keep(self, "subordinates", adopt_members(self.name, subordinates))
            for member in self.subordinates:
                if isinstance(member, Agent) and member.limits.root_only_names:
                    raise ConfigurationError(
                        "agent {agent!r} has a superior, and limits on {limits}; these are "
                        "counted for a whole tree: give them to its root. Any agent may limit its "
                        "depth",
                        code="inner_limits",
                        agent=member.name,
                        limits=tuple(member.limits.root_only_names),
                    )
                if isinstance(member, Agent) and member.theme:
                    raise ConfigurationError(
                        "agent {agent!r} has a superior, and a theme; the names of a tree are of "
                        "its root's theme: give it to the root",
                        code="inner_theme",
                        agent=member.name,
                    )
            check_tree(self, self.limits.depth)
            _check_side_requests(self)
            _check_subordinate_tools(self)
        # The fields of features, which know what they may be.
        for item in fields(self):
            if check := item.metadata.get("check"):
                keep(self, item.name, check(self))
        if self.permissions is not NO_PERMISSIONS:
            check_permissions(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Agent:
        """Return the agent itself: it is immutable, and models cannot be copied."""
        return self

    def compile(
        self,
        checkpointer: BaseCheckpointSaver[Any] | str | Path | None = None,
        *,
        store: BaseStore | None = None,
        context_schema: type[Any] | None = None,
        redactor: Redactor = redact_secrets,
    ) -> AgentGraph:
        """Compile the tree to an ordinary LangGraph graph with `messages` in and out.

        The levels of the tree are compiled once, with models by name, and shared by all graphs and
        sessions of the agent.

        Args:
            checkpointer: Any LangGraph checkpoint saver, the path of a SQLite database, or
                `None` for no persistence, unless a surrounding graph passes on its own saver.
            store: A LangGraph store, available to tools of every level.
            context_schema: The type of the `context` of its runs: a pydantic model, a dataclass or
                a `TypedDict`. LangGraph makes a mapping one of it; Studio shows its fields.
            redactor: Takes a text of an exception, and returns it without what must not be seen;
                applied before any model, log, event or database gets the text. The default
                removes what looks like a key or a password; `str` keeps everything.

        Returns:
            A `CompiledStateGraph`: `invoke`, `stream`, `ainvoke`, `astream`,
            `get_state(subgraphs=True)`, history and forks work as on any graph.

        Raises:
            ModelError: A model given by name is unknown, or has no API key.
            StorageError: The database cannot be opened.
            ConfigurationError: The checkpointer is neither a saver nor a path.
            InvalidInput: The store is no LangGraph store, the schema no class, or the redactor no
                function.
        """
        from echelons.graphs.compiled_tree import compile_tree

        return compile_tree(self, checkpointer, store, context_schema, redactor)

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> BaseTool:
        """Return a LangChain tool that gives the tree a task, for an agent of another framework.

        Its arguments are the fields of the contract's input, or `task`; its result is the answer.
        It runs within the host's run, and is stored by the host's checkpointer: a question of any
        level interrupts the host, and goes on when the host is resumed. Each call is a thread of
        its own.

        Args:
            name: Its name; the agent's by default.
            description: Its purpose; the agent's by default.

        Raises:
            ModelError: A model given by name is unknown, or has no API key.
            ConfigurationError: There is no description, or a text is none.
        """
        from echelons.graphs.compiled_tree import build_agent_tool

        return build_agent_tool(self, name, description)

    @classmethod
    def from_folder(cls, path: str | Path, *, trusted: bool = False) -> Agent:
        """Return the root agent of a team's folder; the folder is the tree.

        An agent's folder has its `prompt.md`, `settings.toml`, `prompts`, `tools` and `middleware`,
        and a folder for each subordinate. A file that an agent lacks is looked up in the team's
        `default` folder.

        Args:
            path: The team's folder.
            trusted: Whether the Python in it may be executed.

        Raises:
            TeamError: There is no such folder; something is wrong with its files; it names each
                with its line.
            TeamNotTrusted: It has Python, and is not trusted.
        """
        from echelons.profiles.builder import load_team_folder

        return load_team_folder(path, trusted)

    def draw(self) -> Drawing:
        """Return a drawing of the tree, as text and as Mermaid; notebooks render it."""
        from echelons.tree.agent_registry import Drawing

        return Drawing(self)


MODELS = "BaseChatModel, str or function, such as 'openai:gpt-5-mini' (the default is inherited)"
"""What a model may be."""
PROMPTS = "str, SystemMessage, or function of the state, or of the state and the runtime"
"""What a prompt may be."""
GUIDANCE = f"str, or mapping to str of some of {', '.join(GUIDANCE_PARTS)}"
"""What a guidance may be."""
BUILT_IN = f"some of the names {', '.join(SHOWN_TOOLS)}, in a tuple"
"""What built-in tools may be; the compiled tree refuses those that the place makes impossible."""
MIDDLEWARE = "AgentMiddleware, in a list, each an instance of another name"
"""What middleware may be."""


def get_compiled(agent: Agent) -> Any:
    """Return what `keep_compiled` has kept; `None` for nothing."""
    return getattr(agent, "compiled", None)


def keep_compiled(agent: Agent, compiled: Any) -> None:
    """Keep what was compiled of an agent, which never changes, for as long as the agent lives."""
    object.__setattr__(agent, "compiled", compiled)


def subordinate(
    wrapped: Any,
    *,
    name: str | None = None,
    description: str | None = None,
    capabilities: Mapping[str, float] | Mapping[str, Capability | float] | None = None,
    contract: Contract | None = None,
) -> Member:
    """Return a graph, Runnable or function as a member of a tree, with what an agent has.

    Give the result to an agent as a subordinate. The defaults are the object's own.

    Args:
        wrapped: A compiled LangGraph graph, a Runnable, a function that takes the message, or a
            compiled tree. Of a tree, and of an `Agent`, the result is a changed copy of the agent.
        name: Its name in the tree, as of an `Agent`; needed if its own is no agent name.
        description: Its purpose in a sentence. Its superior's model reads it.
        capabilities: Its capabilities by name: a confidence from 0 to 1, or a `Capability`.
        contract: The types of its input and its output. A function and a Runnable are given an
            instance of the input in place of the message, a graph its fields beside `messages`. The
            output is what they return: an instance, its fields or its JSON; of a graph its
            `structured_response`, the fields of its state, or its last message.

    Raises:
        ConfigurationError: An argument is invalid; the subclass says which.

    Examples:
        >>> def convert(task):
        ...     return f"{task} is 10 EUR"
        >>> money = subordinate(convert, name="money", capabilities={"currencies": 0.9})
        >>> Agent("head", subordinates=[money]).subordinates[0].name
        'money'
    """
    if name is not None:
        name = check_name(name)
    with refuse_unreadable(lambda why: invalid_subordinate("", wrapped, why)):
        member: Any = adopt_member("", wrapped, name)
        fields: dict[str, Any] = {"name": name, "description": read_text(description)}
        if description is not None and fields["description"] is None:
            raise invalid_field(member.name, "description", description, "str")
        if capabilities is not None:
            fields["capabilities"] = check_capabilities(name or member.name, capabilities)
        if contract is not None:
            if not isinstance(contract, Contract) or not hasattr(member, "contract"):
                expected = "Contract, for an agent, a graph, a Runnable or a function"
                raise invalid_field(member.name, "contract", contract, expected)
            fields["contract"] = contract
            if isinstance(member, Agent):
                member = replace(member, contract=None, response_format=None)
        changed: Member = replace(
            member, **{key: value for key, value in fields.items() if value is not None}
        )
    return changed


def _check_fields(agent: Agent) -> Iterator[tuple[str, object]]:
    """Yield the fields of plain types, texts as plain ones."""
    kinds = {
        "description": str,
        "limits": Limits,
        "delegation": DelegationPolicy,
        "permissions": Permissions,
        "inherit_middleware": bool,
    }
    for name, kind in kinds.items():
        value = getattr(agent, name)
        if value is None and name == "delegation":
            continue
        if not issubclass(type(value), kind):
            raise invalid_field(agent.name, name, value, kind.__name__)
        yield name, read_text(value) if kind is str else value


def _check_prompt(agent: str, prompt: Any) -> Any:
    if (text := read_text(prompt)) is not None:
        return text
    # The domain does not import LangChain; only a message has a type and content blocks.
    is_message = hasattr(prompt, "content_blocks") and getattr(prompt, "type", "") == "system"
    if isinstance(prompt, type) or not (is_message or bind_state(prompt)):
        raise invalid_field(agent, "prompt", prompt, PROMPTS)
    return prompt


def bind_state(function: Any) -> Callable[[Any, Any], partial[Any]] | None:
    """Return what binds the state, and the runtime, to a function if it takes these."""
    bindings: tuple[Callable[[Any, Any], partial[Any]], ...] = (
        lambda state, runtime: partial(function, state, runtime=runtime),
        lambda state, _: partial(function, state),
        lambda state, runtime: partial(function, state, runtime),
    )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    for bind in bindings:
        bound = bind(None, None)
        with suppress(TypeError):
            signature.bind(*bound.args, **bound.keywords)
            return bind
    return None


def _check_guidance(agent: str, guidance: Any) -> str | Mapping[str, str] | None:
    if guidance is None or issubclass(type(guidance), str):
        return read_text(guidance)
    if isinstance(guidance, Mapping):
        texts = {read_text(name): read_text(text) for name, text in list_items(guidance.items())}
        named = {name: text for name, text in texts.items() if name and text is not None}
        if len(named) == len(texts) and named.keys() <= set(GUIDANCE_PARTS):
            return MappingProxyType(named)
    raise invalid_field(agent, "guidance", guidance, GUIDANCE)


def _check_tools(agent: str, tools: Any) -> tuple[Any, ...]:
    if isinstance(tools, (str, bytes, Mapping)) or not hasattr(tools, "__iter__"):
        raise unknown_tool(agent, tools)
    # A dict is a tool that the model's provider runs, and data: a copy of it.
    checked = tuple(
        json.loads(json.dumps(tool)) if get_provider_tool_name(tool) else tool
        for tool in list_items(tools)
    )
    seen: set[str] = set()
    for tool in checked:
        is_provided = bool(get_provider_tool_name(tool))
        if is_provided and "name" not in tool:
            continue  # such as several servers of one type
        name: Any = getattr(tool, "name", None) or getattr(tool, "__name__", None)
        if is_provided:
            name = tool["name"]
        if not isinstance(name, str) or not (is_provided or _is_tool(tool)):
            raise unknown_tool(agent, tool)
        if name in RESERVED_TOOLS:
            raise invalid_name(name, "a tool of every agent is called so")
        if name in seen:
            raise duplicate_name(name, (f"tools of {agent}",))
        seen.add(name)
    return checked


def _check_built_in(agent: str, names: Any) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, (str, bytes, Mapping)) or not hasattr(names, "__iter__"):
        raise invalid_field(agent, "builtin_tools", names, BUILT_IN)
    checked = tuple(list_items(names))
    for name in checked:
        if name not in SHOWN_TOOLS:
            raise invalid_field(agent, "builtin_tools", name, _find_nearest_built_in(name))
    return checked


def _find_nearest_built_in(name: object) -> str:
    """Return what to give in place of a name that no built-in tool has."""
    near = [ASK] if name in EARLIER_TOOLS else get_close_matches(str(name), SHOWN_TOOLS, n=1)
    return f"{near[0]!r}, the nearest of the names {', '.join(SHOWN_TOOLS)}" if near else BUILT_IN


def _check_middleware(agent: Agent) -> tuple[Any, ...]:
    middleware: Any = agent.middleware
    if isinstance(middleware, (str, bytes, Mapping)) or not hasattr(middleware, "__iter__"):
        raise invalid_field(agent.name, "middleware", middleware, MIDDLEWARE)
    # An instance has loaded LangChain, which the domain does not import.
    loaded = sys.modules.get("langchain.agents.middleware.types")
    kind: Any = getattr(loaded, "AgentMiddleware", ())
    names: set[str] = set()
    checked = tuple(list_items(middleware))
    for layer in checked:
        if not isinstance(layer, kind):
            raise invalid_field(agent.name, "middleware", layer, MIDDLEWARE)
        # They become the names of nodes.
        if not isinstance(layer.name, str) or not layer.name or set(layer.name) & set("|:"):
            raise invalid_name(str(layer.name), "a middleware is a node: no ':' and no '|'")
        if layer.name in names:
            raise duplicate_name(layer.name, (f"middleware of {agent.name}",))
        names.add(layer.name)
        # LangChain's own state has `jump_to`, too.
        added = getattr(layer.state_schema, "__annotations__", {})
        for key in (PRIVATE_KEYS - {"jump_to"}) & added.keys():
            where = ("the state of every agent", f"that of the middleware {layer.name}")
            raise duplicate_name(key, where)
    check_middleware_tools(agent, checked)
    return checked


def _check_contract(agent: Agent) -> Contract | None:
    contract: Any = agent.contract
    if contract is None:
        return Contract(output=agent.response_format) if agent.response_format else None
    if not isinstance(contract, Contract):
        raise invalid_field(agent.name, "contract", contract, "Contract")
    if agent.response_format not in (None, contract.output):
        why = "the output of the contract, which is given too"
        raise invalid_field(agent.name, "response_format", agent.response_format, why)
    return contract


def _check_subordinate_tools(agent: Agent) -> None:
    """Check that the tools named after subordinates with an input have names that are free."""
    taken = {getattr(tool, "name", None) or getattr(tool, "__name__", "") for tool in agent.tools}
    for layer in agent.middleware:
        taken |= {tool.name for tool in getattr(layer, "tools", ())}
    for name in get_inputs({subordinate.name: subordinate for subordinate in agent.subordinates}):
        if name in RESERVED_TOOLS:
            raise invalid_name(name, "a tool of every agent is called so")
        if name in taken:
            raise duplicate_name(name, (f"tools of {agent.name}", f"subordinates of {agent.name}"))


def _check_side_requests(agent: Agent) -> None:
    """Check that the agents that an agent's middleware asks are its subordinates."""
    names = {subordinate.name for subordinate in agent.subordinates}
    for layer in agent.middleware:
        for name in getattr(layer, "asks", ()):
            if name not in names:
                allowed = f"a {layer.name} that asks one of {', '.join(sorted(names)) or 'nobody'}"
                raise invalid_field(agent.name, "middleware", name, allowed)


def check_middleware_tools(agent: Agent, middleware: Sequence[Any]) -> None:
    """Check that the tools of an agent's middleware have names that are free."""
    taken = {getattr(tool, "name", None) or getattr(tool, "__name__", "") for tool in agent.tools}
    for layer in middleware:
        for tool in getattr(layer, "tools", ()):
            if tool.name in RESERVED_TOOLS:
                raise invalid_name(tool.name, "a tool of every agent is called so")
            if tool.name in taken:
                where = (f"tools of {agent.name}", f"the middleware {layer.name} of {agent.name}")
                raise duplicate_name(tool.name, where)
            taken.add(tool.name)


def _is_tool(tool: Any) -> bool:
    if inspect.isroutine(tool):
        # A model calls a tool by its name and knows it by its docstring; a lambda has neither.
        return bool(inspect.getdoc(tool)) and tool.__name__.isidentifier()
    return hasattr(tool, "invoke") and hasattr(tool, "args_schema") and not isinstance(tool, type)
