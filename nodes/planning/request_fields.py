"""`DelegatingTool`: a tool whose calls become requests, with the parameters that features add."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, create_model

from echelons.features.feature import BuiltIn, RequestField

M = TypeVar("M", bound=BaseModel)


@lru_cache(64)
def extend_arguments(model: type[M], fields: tuple[RequestField, ...]) -> type[M]:
    """Return a model of arguments with further parameters of requests."""
    more: dict[str, Any] = {added.name: (added.kind, None) for added in fields}
    return create_model(model.__name__, __base__=model, **more)


def store_fields(wanted: BaseModel, fields: Sequence[RequestField]) -> dict[str, Any]:
    """Return what a call gives a request by further parameters, as it is stored with it."""
    values = ((added, getattr(wanted, added.name)) for added in fields)
    return {added.name: added.store(value) for added, value in values if value}


class DelegatingTool(BuiltIn):
    """A tool whose calls become requests.

    Attributes:
        fields: The parameters that features add to its requests.
    """

    is_executed = False
    fields: tuple[RequestField, ...] = ()

    def add_fields(self, fields: Sequence[RequestField]) -> None:
        """Take further parameters of requests."""
        self.fields = (*fields,)
        self.arguments = extend_arguments(self.arguments, self.fields)

    def _show_fields(self) -> dict[str, Any]:
        """Return the further parameters that a model is shown."""
        return {added.name: added.schema for added in self.fields if added.schema is not None}
