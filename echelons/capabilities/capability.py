"""`Capability`, and the immutable mapping in which an agent keeps those that it declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict

from echelons.errors import InvalidCapability, InvalidExamples

UNNAMED_CAPABILITY = "(not named yet)"


class Capability(BaseModel):
    """A capability of an agent: a confidence and example tasks.

    Args:
        confidence: How well the agent can do it, from 0 to 1.
        examples: Tasks of that kind, in the words of users. The more there are, the better a
            task in other words is recognised.

    Raises:
        InvalidCapability: The confidence is not a number from 0 to 1.
        InvalidExamples: The examples are not a list of non-blank strings.

    Examples:
        >>> Capability(0.8, examples=["book a table for two"])
        Capability(confidence=0.8, examples=('book a table for two',))
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    confidence: float
    examples: tuple[str, ...] = ()

    def __init__(self, confidence: float, examples: Iterable[str] = ()) -> None:
        if not _is_confidence(confidence):
            raise InvalidCapability("", UNNAMED_CAPABILITY, confidence)
        super().__init__(confidence=float(confidence), examples=_check_examples(examples))


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
        InvalidCapability: A name is not a string or blank, or a confidence is not a number from
            0 to 1.
    """
    if isinstance(capabilities, DeclaredCapabilities):
        return capabilities
    if not isinstance(capabilities, Mapping):
        raise InvalidCapability(agent, capabilities, None)
    kept: dict[str, Capability] = {}
    for name, given in capabilities.items():
        confidence = given.confidence if isinstance(given, Capability) else given
        if not isinstance(name, str) or not name.strip() or not _is_confidence(confidence):
            raise InvalidCapability(agent, name, confidence)
        kept[name] = given if isinstance(given, Capability) else Capability(given)
    return DeclaredCapabilities(kept)


def _is_confidence(value: Any) -> bool:
    # The comparison also rejects NaN.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _check_examples(examples: Any) -> tuple[str, ...]:
    if isinstance(examples, (str, bytes, Mapping)) or not hasattr(examples, "__iter__"):
        raise InvalidExamples(examples)
    texts = tuple(examples)
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise InvalidExamples(texts)
    return texts
