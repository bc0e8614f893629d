"""`Contract`: the types of an agent's tasks and answers, as pydantic models.

Both are passed as JSON. Each side validates it with the class that its own tree declares; no class
is ever looked up by a stored name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from echelons.errors import ConfigurationError, InvalidInput, InvalidSetting
from echelons.text.input_limits import CONTEXT_BYTES, copy_plain, shorten_repr
from echelons.text.json_schema import build_example, find_recursion, inline_references

SCHEMA_BYTES = 32 * 1024
"""Maximum size of a schema as JSON: a model reads it with each of its calls."""
OUTPUT_BYTES = 1024 * 1024
MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Contract:
    """The input and the output of an agent, each a pydantic model, or `None` for plain text.

    Beside `call_subordinate`, a superior's model has a tool named after each subordinate with an
    input, whose parameters are the fields of the model. An answer that is not of the output is not
    accepted: the agent's model gets the fault, and tries again.

    Args:
        input: The type of a task.
        output: The type of an answer.
        attempts: Most answers that are tried before the agent is `unable`.
        example: The fields of an input, with which it is tried out; made of the schema if left out.

    Attributes:
        input_schema: JSON Schema of the input, without `$ref`; `None` without an input.
        output_schema: Likewise, of the output.

    Raises:
        ConfigurationError: One is no pydantic model, has a schema that is too large or contains
            itself, no input can be made of the example, or there is neither.
        InvalidSetting: `attempts` is no number from 1 to 20.

    Examples:
        >>> class Query(BaseModel):
        ...     query: str
        >>> Contract(input=Query).read_input({"query": "wine"})
        Query(query='wine')
    """

    input: type[BaseModel] | None = None
    output: type[BaseModel] | None = None
    attempts: int = 3
    example: Mapping[str, Any] | None = None
    input_schema: dict[str, Any] | None = field(init=False, repr=False, compare=False)
    output_schema: dict[str, Any] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (type(self.attempts) is int and 1 <= self.attempts <= MAX_ATTEMPTS):
            why = f"give a number from 1 to {MAX_ATTEMPTS}"
            raise InvalidSetting("Contract", "attempts", self.attempts, why)
        if self.input is None and self.output is None:
            why = "it declares neither; give an input, an output or both, or leave it out"
            raise _invalid_contract("types", why)
        keep = object.__setattr__
        keep(self, "input_schema", _build_schema("input", self.input))
        keep(self, "output_schema", _build_schema("output", self.output))
        if self.input is None or self.input_schema is None:
            return
        example = self.example
        if example is None:
            example = build_example(self.input_schema)
        try:
            self.read_input(example)
        except InvalidInput as error:
            why = f"an example of it is refused ({error}); give Contract(example={{...}})"
            raise _invalid_contract(self.input.__name__, why) from error

    def read_input(self, fields: object) -> BaseModel:
        """Return the input that has these fields, as JSON.

        Raises:
            InvalidInput: They are not valid.
            InvalidInput: They are no JSON, or too large.
        """
        assert self.input is not None  # noqa: S101  callers look first
        if not isinstance(fields, Mapping):
            raise _contract_broken(f"it is {shorten_repr(fields)}; {self.describe_input()}")
        plain = copy_plain(fields, "the input", CONTEXT_BYTES)[0]
        return _validate(self.input, plain)

    def read_task(self, task: str) -> BaseModel:
        """Return the input that a task in words is: its JSON, or its only text.

        Raises:
            InvalidInput: It is neither.
            InvalidInput: It is too large.

        Examples:
            >>> class Query(BaseModel):
            ...     query: str
            ...     limit: int = 3
            >>> Contract(input=Query).read_task("wine")
            Query(query='wine', limit=3)
        """
        try:
            fields: object = json.loads(task)
        except ValueError:
            fields = None
        if isinstance(fields, dict):
            return self.read_input(fields)
        schema = self.input_schema or {}
        required = schema.get("required", [])
        if len(required) != 1 or schema["properties"][required[0]].get("type") != "string":
            raise _contract_broken(self.describe_input())
        return self.read_input({required[0]: task})

    def describe_input(self) -> str:
        """Return what an input has to be, in words for a model."""
        assert self.input_schema is not None  # noqa: S101  callers look first
        names = ", ".join(self.input_schema.get("properties", {}))
        return f"it takes an object with {names or 'no fields'}, and no plain message"

    def read_output(self, answer: object) -> BaseModel:
        """Return the output that an answer is: a text with JSON, JSON itself, or an instance.

        Raises:
            InvalidInput: It is none of the type.
            InvalidInput: It is too large.
        """
        assert self.output is not None  # noqa: S101  callers look first
        if isinstance(answer, BaseModel):
            answer = answer.model_dump(mode="json", by_alias=True)
        if isinstance(answer, str):
            try:
                answer = json.loads(_strip_fence(answer))
            except ValueError as error:
                raise _contract_broken(f"it is no JSON ({error})") from error
        return _validate(self.output, copy_plain(answer, "the output", OUTPUT_BYTES)[0])


class SubordinateTool(dict[str, Any]):
    """The schema of a tool that is named after a subordinate, as opposed to other tools."""


class DelegationTool(dict[str, Any]):
    """The schema of `call_subordinate`, with what only the offline planner reads.

    A provider is sent the mapping alone, without the roster (see `render_roster`): a model reads of
    its subordinates in its system message, where they have no scores.
    """

    roster: str = ""


def get_contract(member: object) -> Contract | None:
    """Return the contract of a member of a tree; `None` if it has none."""
    return getattr(member, "contract", None)


def get_inputs(members: Mapping[str, object]) -> dict[str, Contract]:
    """Return the contracts with an input, by the member's name."""
    contracts = {name: get_contract(member) for name, member in members.items()}
    return {name: contract for name, contract in contracts.items() if contract and contract.input}


def dump_model(value: BaseModel) -> dict[str, Any]:
    """Return an input or an output as JSON, as it is stored."""
    return value.model_dump(mode="json", by_alias=True)


def _build_schema(kind: str, model: Any) -> dict[str, Any] | None:
    if model is None:
        return None
    name = getattr(model, "__name__", None) or shorten_repr(model)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise _invalid_contract(name, f"the {kind} has to be a class of pydantic models")
    try:  # a model's code may raise anything
        schema = model.model_json_schema()
        size = len(json.dumps(schema))
    except Exception as error:
        raise _invalid_contract(name, f"it has no JSON Schema ({error})") from error
    if size > SCHEMA_BYTES:
        raise _invalid_contract(
            name, f"its schema has {size} bytes; at most {SCHEMA_BYTES} are read"
        )
    if recursive := find_recursion(schema):
        raise _invalid_contract(name, f"{recursive} contains itself; give a model of a known depth")
    if schema.get("type") != "object":
        raise _invalid_contract(name, "it is no object with fields; give a model with fields")
    try:
        return inline_references(schema, SCHEMA_BYTES)
    except ValueError as error:
        raise _invalid_contract(name, f"its schema is too large: {error}") from error


def _validate(model: type[BaseModel], plain: Any) -> BaseModel:
    try:
        # As JSON, which has no dates and no enumerations: a stored value is read the same way.
        return model.model_validate_json(json.dumps(plain, allow_nan=False))
    except ValidationError as error:
        raise _contract_broken(describe_faults(error)) from error
    # A validator is the caller's code.
    except Exception as error:
        raise _contract_broken(f"{type(error).__name__}: {error}") from error


def describe_faults(error: ValidationError) -> str:
    """Return what is wrong with some fields, in words that a model can act on."""
    faults = (
        (".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, "))
        for fault in error.errors(include_url=False, include_context=False)
    )
    return "; ".join(": ".join(filter(None, fault)) for fault in faults)


def _strip_fence(text: str) -> str:
    """Return a text without the fence of Markdown that models like to put around JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json")
    return text.strip()


def _invalid_contract(model: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        "the contract's {model}: {why}", code="invalid_contract", model=model, why=why
    )


def _contract_broken(why: str) -> InvalidInput:
    return InvalidInput("{why}", code="contract_broken", why=why)
