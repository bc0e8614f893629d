"""A capability, and how an agent keeps those that it declares.

``Agent`` checks with ``declared`` what it is given. Whoever reads an agent's capabilities sees
plain confidences; whoever wants the example tasks too asks for ``Declared.full``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict

from echelons.errors import InvalidCapability, InvalidExamples

UNNAMED = "(not named yet)"


class Capability(BaseModel):
    """How well an agent can do something, and tasks of that kind.

    Args:
        confidence: How well, from 0 to 1.
        examples: Tasks in the words of those who ask. The more there are, the better a task
            in other words is recognised.

    Raises:
        InvalidCapability: The confidence is no number from 0 to 1.
        InvalidExamples: The examples are no list of texts.

    Examples:
        >>> Capability(0.8, examples=["book a table for two"])
        Capability(confidence=0.8, examples=('book a table for two',))
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    confidence: float
    examples: tuple[str, ...] = ()

    def __init__(self, confidence: float, examples: Iterable[str] = ()) -> None:
        if not _is_confidence(confidence):
            raise InvalidCapability("", UNNAMED, confidence)
        super().__init__(confidence=float(confidence), examples=_texts(examples))


class Declared(Mapping[str, float]):
    """The capabilities of one agent, immutable: to its readers, confidences by name.

    Attributes:
        full: The same with their example tasks.
    """

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


def declared(agent: str, capabilities: Any) -> Declared:
    """Return what ``agent`` declares, checked and kept for good.

    Args:
        agent: Its name, for the error.
        capabilities: A confidence or a ``Capability`` for each name.

    Raises:
        InvalidCapability: A name is no text or blank, or a confidence no number from 0 to 1.
        InvalidExamples: Examples are no texts.
    """
    if isinstance(capabilities, Declared):
        return capabilities
    if not isinstance(capabilities, Mapping):
        raise InvalidCapability(agent, capabilities, None)
    kept: dict[str, Capability] = {}
    for name, given in capabilities.items():
        confidence = given.confidence if isinstance(given, Capability) else given
        if not isinstance(name, str) or not name.strip() or not _is_confidence(confidence):
            raise InvalidCapability(agent, name, confidence)
        kept[name] = given if isinstance(given, Capability) else Capability(given)
    return Declared(kept)


def _is_confidence(value: Any) -> bool:
    # The comparison also refuses NaN.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _texts(examples: Any) -> tuple[str, ...]:
    if isinstance(examples, (str, bytes, Mapping)) or not hasattr(examples, "__iter__"):
        raise InvalidExamples(examples)
    texts = tuple(examples)
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise InvalidExamples(texts)
    return texts
