"""Errors of models: names, addresses and abilities.

Raised where a model's name is resolved and where an agent is bound to its model.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


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
