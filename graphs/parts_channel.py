"""`Parts`: the key of a state that collects what came of requests, until nobody needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self, TypeAlias

from langgraph.channels.base import BaseChannel
from langgraph.errors import EmptyChannelError


def merged(held: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, without the entries that are taken out by `None`."""
    return {key: entry for key, entry in {**held, **new}.items() if entry is not None}


class Collected(BaseChannel[dict[str, Any], dict[str, Any], dict[str, Any]]):
    """A channel that is not there while it is empty, so that no checkpoint knows of it.

    LangGraph's own channel with a reducer would do, but for one thing: where it is not in a
    checkpoint, LangGraph reads the whole past of the thread to make sure that it is empty.
    """

    __slots__ = ("value",)

    def __init__(self, typ: Any = dict, key: str = "") -> None:
        super().__init__(typ, key)
        self.value: dict[str, Any] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collected)

    def __hash__(self) -> int:
        return hash(Collected)

    @property
    def ValueType(self) -> Any:  # noqa: N802  LangGraph's name
        """The type of what is in it."""
        return dict[str, Any]

    @property
    def UpdateType(self) -> Any:  # noqa: N802  LangGraph's name
        """The type of what is written into it."""
        return dict[str, Any]

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return one that holds what is stored."""
        held = self.__class__(self.typ, self.key)
        if isinstance(checkpoint, Mapping):
            held.value = dict(checkpoint)
        return held

    def update(self, values: Sequence[dict[str, Any]]) -> bool:
        """Add entries, and take others out; return whether there were any."""
        for value in values:
            self.value = merged(self.value, value)
        return bool(values)

    def is_available(self) -> bool:
        """Return whether anything is in it."""
        return bool(self.value)

    def get(self) -> dict[str, Any]:
        """Return what is in it.

        Raises:
            EmptyChannelError: Nothing is.
        """
        if not self.value:
            raise EmptyChannelError
        return self.value


Parts: TypeAlias = Annotated[dict[str, Any], Collected()]
"""The type of a state key for what came of requests, by their ids."""
