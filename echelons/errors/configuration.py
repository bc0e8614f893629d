"""Errors of agents, trees and models that cannot work, raised before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import SHORT, EchelonsError


class ConfigurationError(EchelonsError):
    """An agent or a tree has an invalid configuration; raised at construction."""


class InvalidName(ConfigurationError):
    """A name that LangGraph or a model provider would not accept as a node or tool name.

    Attributes:
        name: The name as it was given.
        why: What is wrong with it, if that is known.
    """

    name: object
    why: str = ""

    def _describe(self) -> str:
        why = self.why and f" ({self.why})"
        return (
            f"{SHORT.repr(self.name)} is no valid agent name{why}; use a letter, then up to 63 "
            "letters, digits, '-' or '_', and none of the names of the level's own nodes"
        )


class DuplicateName(ConfigurationError):
    """Two agents of one tree, or two tools of one agent, have the same name.

    Attributes:
        name: The name that is used twice.
        places: Where it is used, as paths or owners.
    """

    name: str
    places: Sequence[str]
    message = (
        "the name {name!r} stands more than once ({places}); names are unique in a tree: rename "
        "one of them"
    )


class CyclicTree(ConfigurationError):
    """An agent is its own subordinate, directly or further down.

    Attributes:
        path: The names from the root to the agent's second appearance.
    """

    path: Sequence[str]
    message = "the tree has a cycle: {path: -> }; every agent has one superior"


class TreeTooDeep(ConfigurationError):
    """A tree has more levels than its root allows.

    Attributes:
        depth: Levels found, the root counted as 1.
        limit: Levels allowed.
        maximum: The highest limit that can be set.
    """

    depth: int
    limit: int
    maximum: int

    def _describe(self) -> str:
        deep = f"the tree is {self.depth} levels deep, the limit is {self.limit}; flatten it"
        if self.depth > self.maximum:
            return f"{deep}: no tree may be deeper than {self.maximum} levels"
        return f"{deep}, or raise the root's Limits(depth=...) up to {self.maximum}"


class UnknownTool(ConfigurationError):
    """Something in `tools` is neither a LangChain tool nor a named function.

    Also a name in `Permissions` that no tool or subordinate has: a rule for it would hold nothing.

    Attributes:
        agent: The agent that was given it.
        tool: What was given.
        why: Of a name in `Permissions`, what is wrong with it; else empty.
    """

    agent: str
    tool: object
    why: str = ""
    message = (
        "agent {agent!r}: {tool!r} is no tool; pass a LangChain tool, a function with a name and "
        "a docstring, or a dict of a tool that the model's provider runs"
    )

    def _describe(self) -> str:
        return self._fill(
            "agent {agent!r} has a rule for {tool!r}: {why}" if self.why else self.message
        )


class PermissionsWidened(ConfigurationError, ValueError):
    """An agent may do more than one of its superiors: by a rule, or by what it is granted.

    Attributes:
        agent: Path of the agent, from the superior on.
        superior: The superior.
        name: The tool or subordinate that both rules are for; `tools`, `paths` or `network`; or a
            setting of `Spawn`, such as `spawn.levels`.
        rule: The agent's rule, or what it is granted.
        limit: The superior's.
    """

    agent: str
    superior: str
    name: str
    rule: str
    limit: str
    message = (
        "{agent!r} has {rule} for {name!r}, and {superior!r} above it has {limit}; an agent can "
        "only narrow what its superiors allow (of rules 'allow', a predicate, 'ask', 'deny'): "
        "leave it out, or make it as strict"
    )


class InvalidCapability(ConfigurationError):
    """A capability is not a non-empty text with a confidence from 0 to 1.

    Attributes:
        agent: The agent that declares it; empty if unknown.
        capability: The name as it was given.
        confidence: The value as it was given.
    """

    agent: str
    capability: object
    confidence: object

    def _describe(self) -> str:
        owner = f"agent {self.agent!r}: " if self.agent else ""
        given = f"{SHORT.repr(self.capability)} with confidence {SHORT.repr(self.confidence)}"
        return (
            f"{owner}capability {given}; a capability is a non-empty text, its confidence a number "
            "from 0 to 1"
        )


class InvalidExamples(ConfigurationError):
    """The examples of a capability are not a list of texts.

    Attributes:
        examples: What was given.
    """

    examples: object
    message = "{examples:short} are no examples; pass a list of tasks, each a non-empty text"


class InvalidSubordinate(ConfigurationError):
    """Something in `subordinates` cannot be run as one.

    Attributes:
        superior: The agent that was given it; empty if `subordinate` was.
        subordinate: What was given.
        why: What is wrong with it.
    """

    superior: str
    subordinate: object
    why: str

    def _describe(self) -> str:
        where = "agent {superior!r}: " if self.superior else ""
        return self._fill(f"{where}{{subordinate!r}} is no subordinate: {{why}}")


class InvalidField(ConfigurationError):
    """A field of an agent has an invalid value, such as one of the wrong type.

    Attributes:
        agent: The agent that was given it.
        field: The field's name.
        value: What was given.
        expected: The expected type.
    """

    agent: str
    field: str
    value: object
    expected: str
    message = "agent {agent!r}: {field}={value!r}; pass a value of type {expected}, or leave it out"


class InvalidTheme(ConfigurationError):
    """Names for people cannot be used.

    Attributes:
        theme: The theme, or the file of names.
        line: The line of the first fault; 0 if there is none.
        why: What is wrong.
    """

    theme: str
    line: int
    why: str
    message = (
        "theme {theme!r}, line {line}: {why}. A theme is a UTF-8 file with a name on each line, "
        "or one that Echelons has"
    )


class InvalidPrices(ConfigurationError, ValueError):
    """Prices of models cannot be used.

    Attributes:
        source: What was to be made, or the file.
        keys: The keys of the value that is wrong, outermost first; none for the whole.
        why: What is wrong.
        line: The line of the file; 0 if there is none.
    """

    source: str
    keys: Sequence[str]
    why: str
    line: int = 0

    def _describe(self) -> str:
        place = f"{self.source}, line {self.line}" if self.line else self.source
        key = ".".join(self.keys)
        return f"{place}: {key and f'{key}: '}{self.why}"


class PriceMissing(ConfigurationError, LookupError):
    """The prices that were given have none for a model.

    Attributes:
        model: The name that the model reports.
        nearest: The name among the prices that is most like it.
    """

    model: str
    nearest: str
    message = (
        "there is no price for the model {model!r} (the nearest name that has one is {nearest!r}); "
        "add one under the name that it reports"
    )


class ContextFailed(ConfigurationError):
    """The function that condenses what subordinates are told raised, or returned no context.

    Attributes:
        agent: Path of the agent whose subordinates are told.
        why: What is wrong.
    """

    agent: str
    why: str
    message = (
        "the context that {agent!r} gives failed: {why}; let the function of "
        "DelegationPolicy(context=…) return a DelegationContext, and resume the turn"
    )


class PromptFailed(ConfigurationError):
    """A prompt that is a function raised, or returned no prompt.

    Attributes:
        agent: Path of the agent.
        why: What is wrong.
    """

    agent: str
    why: str
    message = (
        "the prompt of {agent!r} failed: {why}; let the function return a str or a SystemMessage, "
        "and resume the turn"
    )


class MiddlewareFailed(ConfigurationError):
    """A middleware of an agent raised, or did what no middleware can do.

    Attributes:
        agent: Path of the agent.
        middleware: Name of the middleware.
        hook: Name of the hook, such as `"wrap_model_call"`.
        why: What is wrong.
    """

    agent: str
    middleware: str
    hook: str
    why: str
    message = (
        "{hook} of the middleware {middleware!r} of {agent!r} failed: {why}; mend it, or take it "
        "out, and resume the turn"
    )


class InvalidSetting(ConfigurationError, ValueError):
    """A limit, a policy or another object is made with an invalid value, or an unknown name.

    Attributes:
        owner: What was to be made.
        setting: The name of the value.
        value: What was given.
        why: What is wrong with it, and what to give.
    """

    owner: str
    setting: str
    value: object
    why: str
    message = "{owner}({setting}={value:short}): {why}"


class InvalidTool(ConfigurationError, TypeError):
    """A tool of an agent cannot be shown to a model.

    Attributes:
        agent: Path of the agent.
        tool: Name of the tool.
        why: What is wrong with it.
    """

    agent: str
    tool: str
    why: str
    message = "the tool {tool!r} of {agent}: {why}"


class InvalidContract(ConfigurationError, TypeError):
    """A type of a contract is no pydantic model with fields, or none that can be used.

    Attributes:
        model: Name of the type.
        why: What is wrong with it.
    """

    model: str
    why: str
    message = "the contract's {model}: {why}"


class InvalidAgent(ConfigurationError, TypeError):
    """Something is given as the root of a tree that is no `Agent`.

    Attributes:
        given: What was given.
    """

    given: object
    message = (
        "{given:short} is no agent; pass an Agent. A shipped team is made by a function, such as "
        "echelons.teams.travel.team.team(); only `echelons run` loads one by its name"
    )


class InnerLimits(ConfigurationError, ValueError):
    """An agent below the root has limits that are counted for a whole tree.

    Attributes:
        agent: The agent.
        limits: Names of the limits.
    """

    agent: str
    limits: Sequence[str]
    message = (
        "agent {agent!r} has a superior, and limits on {limits}; these are counted for a whole "
        "tree: give them to its root. Any agent may limit its depth"
    )


class EventLoopMissing(ConfigurationError):
    """A tree with parts that are only async runs synchronously, and not in a session.

    Attributes:
        parts: These tools and subordinates, with their paths.
    """

    parts: Sequence[str]
    message = (
        "these can only run in an event loop, and a synchronous run of a compiled graph has none: "
        "{parts}; run it with ainvoke or astream, or in a Session, which has a loop for them"
    )


class SessionNeeded(ConfigurationError):
    """A tree with monitors runs outside of a `Session`, which drives them.

    Attributes:
        monitors: Paths of the monitors.
    """

    monitors: Sequence[str]
    message = (
        "these monitors work beside the turns of a Session alone, and this is a run of a compiled "
        "graph: {monitors}; run the tree in a Session, or leave them out. Nothing was run"
    )


class InvalidDatabase(ConfigurationError, TypeError):
    """Something is given as a database that is neither a path nor a LangGraph saver.

    Attributes:
        given: What was given.
    """

    given: object
    message = (
        "{given!r} is no database; pass a LangGraph saver, the path of a SQLite database, or "
        "':memory:' to keep nothing"
    )


class ModelError(EchelonsError):
    """A model cannot be used as requested."""


class ModelKeyMissing(ModelError):
    """A named model needs a key, and the environment has none.

    Attributes:
        model: The model as it was named, `"openai:gpt-5-mini"`.
        variable: The environment variable that would hold the key.
    """

    model: str
    variable: str
    message = (
        "model {model!r} needs a key, and {variable} is not set; set {variable}, or leave the "
        "model out to use the offline planner"
    )


class ModelPackageMissing(ModelError):
    """A named model needs a package that is not installed.

    Attributes:
        model: The model as it was named, `"anthropic:claude-sonnet-4-5"`.
        package: The package.
        requirement: What pip installs to bring it.
    """

    model: str
    package: str
    requirement: str
    message = (
        "model {model!r} needs the package {package!r}, which is not installed; "
        "pip install {requirement}"
    )


class ModelUnavailable(ModelError):
    """The package of a provider cannot create the named model, often for want of a key.

    Attributes:
        model: The model as it was named, `"groq:llama-3.3-70b-versatile"`.
        reason: What the package says, in one line.
    """

    model: str
    reason: str
    message = (
        "model {model!r} cannot be created: {reason}; set what its provider needs, or pass a "
        "LangChain chat model object"
    )


class UnknownModel(ModelError):
    """No known provider accepts the name of a model.

    Attributes:
        model: The name as it was given.
        known: The known forms of names.
    """

    model: str
    known: Sequence[str]
    message = (
        "unknown model {model!r}; known forms are {known}, or pass any LangChain chat model object"
    )


class ModelNotChosen(ModelError):
    """The function that chooses an agent's model raised, or returned no model.

    Attributes:
        agent: Path of the agent.
        why: What is wrong.
    """

    agent: str
    why: str
    message = (
        "no model was chosen for {agent!r}: {why}; let the function return a LangChain chat model "
        "or a name, and resume the turn"
    )


class ModelCannotCall(ModelError):
    """A model without tool calls belongs to an agent with tools or subordinates.

    Attributes:
        agent: The agent.
        model: The model's class.
    """

    agent: str
    model: str
    message = (
        "agent {agent!r} has tools or subordinates, and its model {model} cannot call any; give "
        "the agent a model with bind_tools, or take its tools and subordinates away"
    )


class InvalidModelAddress(ModelError):
    """The environment has an invalid address of a model server.

    Attributes:
        variable: The environment variable that holds the address.
        value: The address as it was found.
    """

    variable: str
    value: str
    message = (
        "{variable} is {value!r}, which is no address of a model server; give it as "
        "http://HOST:PORT/v1 or https://…, or unset it to use OpenAI's own"
    )


class McpServerFailed(EchelonsError):
    """An MCP server cannot be used: it does not start or answer, or lists a tool that has a fault.

    Attributes:
        server: Its name.
        reason: What is wrong with it.
    """

    server: str
    reason: str
    message = "the MCP server {server!r} cannot be used: {reason}"
