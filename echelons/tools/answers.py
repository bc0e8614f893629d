"""How a safe tool answers a model when it refuses: with the error's name and message."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from langchain_core.tools import ToolException

from echelons.errors import EchelonsError, get_error_name

P = ParamSpec("P")
T = TypeVar("T")


def raise_refusals(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, with errors of this library raised as `ToolException`.

    With `handle_tool_error=True`, a tool made of it answers with the text in any agent.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except EchelonsError as error:
            raise ToolException(f"{get_error_name(error)}: {error}") from error

    return call
