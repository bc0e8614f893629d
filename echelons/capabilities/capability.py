"""`Capability`, and the immutable mapping in which an agent keeps those that it declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict

from echelons.errors import ConfigurationError
from echelons.text.input_limits import list_items, read_text, refuse_unreadable

UNNAMED_CAPABILITY = "(not named yet)"


class Capability(BaseModel):
    """A capability of an agent: a confidence and example tasks.

    Args:
        confidence: How well the agent can do it, from 0 to 1.
        examples: Tasks of that kind, in the words of users. The more there are, the better a
            task in other words is recognised.

    Raises:
        ConfigurationError: The confidence is not a number from 0 to 1.
        ConfigurationError: The examples are not a list of non-blank strings.

    Examples:
        >>> Capability(0.8, examples=["book a table for two"])
        Capability(confidence=0.8, examples=('book a table for two',))
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    confidence: float
    examples: tuple[str, ...] = ()

    def __init__(self, confidence: float, examples: Iterable[str] = ()) -> None:
        with refuse_unreadable(lambda _: _invalid_capability("", UNNAMED_CAPABILITY, confidence)):
            if not _is_confidence(confidence):
                raise _invalid_capability("", UNNAMED_CAPABILITY, confidence)
            number = float(confidence)
        with refuse_unreadable(lambda _: _invalid_examples(examples)):
            if isinstance(examples, (str, bytes, Mapping)) or not hasattr(examples, "__iter__"):
                raise _invalid_examples(examples)
            values = list_items(examples)
            texts = tuple(text for item in values if (text := read_text(item)) and text.strip())
            if len(texts) < len(values):
                raise _invalid_examples(tuple(values))
        super().__init__(confidence=number, examples=texts)


class DeclaredCapabilities(Mapping[str, float]):
    """The immutable capabilities of one agent: confidences by name; `full` has the examples too."""

    __slots__ = ("full",)

    full: Mapping[str, Capability]

    def __init__(self, full: Mapping[str, Capability]) -> None:
        object.__setattr__(self, "full", MappingProxyType(dict(full)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} never changes")

    def __getitem__(self, name: str) -> float:
        return self.full[name].confidence

    def __iter__(self) -> Iterator[str]:
        return iter(self.full)

    def __len__(self) -> int:
        return len(self.full)

    def __repr__(self) -> str:
        return repr(dict(self.full))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self.full),)


def check_capabilities(agent: str, capabilities: Any) -> DeclaredCapabilities:
    """Return an agent's declared capabilities, validated and immutable.

    Raises:
        ConfigurationError: A name is not a string or blank, or a confidence is not a number from
            0 to 1.
    """
    if type(capabilities) is DeclaredCapabilities:
        return capabilities
    with refuse_unreadable(lambda _: _invalid_capability(agent, capabilities, None)):
        if not isinstance(capabilities, Mapping):
            raise _invalid_capability(agent, capabilities, None)
        entries = [(name, values) for name, values in list_items(capabilities.items())]
    kept: dict[str, Capability] = {}
    for given_name, values in entries:
        with refuse_unreadable(lambda _: _invalid_capability(agent, given_name, values)):  # noqa: B023
            confidence = values.confidence if isinstance(values, Capability) else values
            name = read_text(given_name)
            if name is None or not name.strip() or not _is_confidence(confidence):
                raise _invalid_capability(agent, given_name, confidence)
            kept[name] = values if isinstance(values, Capability) else Capability(values)
    return DeclaredCapabilities(kept)


def _is_confidence(value: Any) -> bool:
    # The comparison also rejects NaN.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _invalid_capability(agent: str, capability: object, confidence: object) -> ConfigurationError:
    owner = "agent {agent!r}: " if agent else ""
    return ConfigurationError(
        f"{owner}capability {{capability!r}} with confidence {{confidence!r}}; a capability is a "
        "non-empty text, its confidence a number from 0 to 1",
        code="invalid_capability",
        agent=agent,
        capability=capability,
        confidence=confidence,
    )


def _invalid_examples(examples: object) -> ConfigurationError:
    return ConfigurationError(
        "{examples:short} are no examples; pass a list of tasks, each a non-empty text",
        code="invalid_examples",
        examples=examples,
    )
