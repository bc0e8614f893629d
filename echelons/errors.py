"""Every error that Echelons raises by name.

One tree under :class:`EchelonsError`. Each error keeps its facts in typed fields and
builds a message that gives the value, the limit and the way out, so that a caller can
catch by type, a program can read the fields, and a person can read the text.
"""

from __future__ import annotations

from collections.abc import Sequence


class EchelonsError(Exception):
    """The root of all errors of this library."""


class ModelError(EchelonsError):
    """A model cannot be used as it was asked for."""


class ModelKeyMissing(ModelError):
    """A named model needs a key, and the environment has none.

    Attributes:
        model: The model as it was named, ``"openai:gpt-5-mini"``.
        variable: The environment variable that would hold the key.
    """

    def __init__(self, model: str, variable: str) -> None:
        self.model = model
        self.variable = variable
        super().__init__(
            f"model {model!r} needs a key, and {variable} is not set; "
            f"set {variable}, or leave the model out to use the offline planner"
        )


class UnknownModel(ModelError):
    """A model is named in a way that no provider here understands.

    Attributes:
        model: The name as it was given.
        known: The forms that are understood.
    """

    def __init__(self, model: str, known: Sequence[str]) -> None:
        self.model = model
        self.known = tuple(known)
        super().__init__(
            f"unknown model {model!r}; known forms are {', '.join(self.known)}, "
            "or pass any LangChain chat model object"
        )


class ConfigurationError(EchelonsError):
    """An agent or a tree is described in a way that cannot work; raised at construction."""


class InvalidName(ConfigurationError):
    """A name that LangGraph or a model provider would not accept as a node or tool name.

    Attributes:
        name: The name as it was given.
    """

    def __init__(self, name: object, why: str = "") -> None:
        self.name = name
        super().__init__(
            f"{name!r} is no valid agent name{why and f' ({why})'}; use a letter, then up to "
            "63 letters, digits, '-' or '_', and none of the names of the level's own nodes"
        )


class DuplicateName(ConfigurationError):
    """Two agents of one tree, or two tools of one agent, have the same name.

    Attributes:
        name: The name that stands twice.
        places: Where it stands, as paths or owners.
    """

    def __init__(self, name: str, places: Sequence[str]) -> None:
        self.name = name
        self.places = tuple(places)
        super().__init__(
            f"the name {name!r} stands more than once ({', '.join(self.places)}); "
            "names are unique in a tree: rename one of them"
        )


class CyclicTree(ConfigurationError):
    """An agent stands below itself.

    Attributes:
        path: The names from the root to the agent's second appearance.
    """

    def __init__(self, path: Sequence[str]) -> None:
        self.path = tuple(path)
        super().__init__(
            f"the tree has a cycle: {' -> '.join(self.path)}; every agent has one superior"
        )


class TreeTooDeep(ConfigurationError):
    """A tree has more levels than its root allows.

    Attributes:
        depth: Levels found, the root counted as 1.
        limit: Levels allowed.
    """

    def __init__(self, depth: int, limit: int) -> None:
        self.depth = depth
        self.limit = limit
        super().__init__(
            f"the tree is {depth} levels deep, the limit is {limit}; flatten it, "
            "or raise the root's Limits(depth=...) up to 32"
        )


class UnknownTool(ConfigurationError):
    """Something in ``tools`` is neither a LangChain tool nor a named function.

    Attributes:
        agent: The agent that was given it.
        tool: What was given.
    """

    def __init__(self, agent: str, tool: object) -> None:
        self.agent = agent
        self.tool = tool
        super().__init__(
            f"agent {agent!r}: {tool!r} is no tool; pass a LangChain tool "
            "or a function with a name and a docstring"
        )


class InvalidCapability(ConfigurationError):
    """A capability is not a non-empty text with a confidence from 0 to 1.

    Attributes:
        agent: The agent that declares it.
        capability: The name as it was given.
        confidence: The value as it was given.
    """

    def __init__(self, agent: str, capability: object, confidence: object) -> None:
        self.agent = agent
        self.capability = capability
        self.confidence = confidence
        super().__init__(
            f"agent {agent!r}: capability {capability!r} with confidence {confidence!r}; "
            "a capability is a non-empty text, its confidence a number from 0 to 1"
        )


class InvalidSubordinate(ConfigurationError):
    """Something in ``subordinates`` cannot be run as one.

    Attributes:
        superior: The agent that was given it.
        subordinate: What was given.
        why: What is wrong with it.
    """

    def __init__(self, superior: str, subordinate: object, why: str) -> None:
        self.superior = superior
        self.subordinate = subordinate
        self.why = why
        super().__init__(f"agent {superior!r}: {subordinate!r} is no subordinate: {why}")


class InvalidModel(ConfigurationError):
    """A model is neither a name nor something that can be called like a chat model.

    Attributes:
        agent: The agent that was given it.
        model: What was given.
    """

    def __init__(self, agent: str, model: object) -> None:
        self.agent = agent
        self.model = model
        super().__init__(
            f"agent {agent!r}: {model!r} is no model; pass a LangChain chat model, a name such "
            "as 'openai:gpt-5-mini', or nothing to inherit the superior's"
        )
