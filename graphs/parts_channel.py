"""The state channel that collects the responses of a call's parts until they are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self, TypeAlias

from langgraph.channels.base import BaseChannel
from langgraph.errors import EmptyChannelError


def merge_parts(held: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return both mappings merged; an entry that is `None` in `new` is deleted."""
    return {key: entry for key, entry in {**held, **new}.items() if entry is not None}


class PartsChannel(BaseChannel[dict[str, Any], dict[str, Any], dict[str, Any]]):
    """A channel of merged mappings that is absent from checkpoints while it is empty.

    LangGraph's own channel with a reducer would do, but for one thing: where a checkpoint lacks
    it, LangGraph reads the whole history of the thread to make sure that it is empty.
    """

    __slots__ = ("value",)

    def __init__(self, typ: Any = dict, key: str = "") -> None:
        super().__init__(typ, key)
        self.value: dict[str, Any] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartsChannel)

    def __hash__(self) -> int:
        return hash(PartsChannel)

    @property
    def ValueType(self) -> Any:  # noqa: N802  LangGraph's name
        """The type of the channel's value."""
        return dict[str, Any]

    @property
    def UpdateType(self) -> Any:  # noqa: N802  LangGraph's name
        """The type of an update."""
        return dict[str, Any]

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return a channel with a stored value."""
        held = self.__class__(self.typ, self.key)
        if isinstance(checkpoint, dict):
            held.value = checkpoint.copy()
        return held

    def copy(self) -> Self:
        """Return a copy of the channel."""
        return self.from_checkpoint(self.value)

    def update(self, values: Sequence[dict[str, Any]]) -> bool:
        """Merge updates into the value; return whether there were any."""
        for value in values:
            self.value = merge_parts(self.value, value)
        return bool(values)

    def is_available(self) -> bool:
        """Return whether the channel has entries."""
        return bool(self.value)

    def get(self) -> dict[str, Any]:
        """Return the entries.

        Raises:
            EmptyChannelError: There are none.
        """
        if not self.value:
            raise EmptyChannelError
        return self.value


Parts: TypeAlias = Annotated[dict[str, Any], PartsChannel()]
"""Type of a state key with the responses of requests, by request id."""
