"""The argument `budget` of the tools that delegate: what a call grants of its agent's budget."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator

from echelons.errors import InvalidSetting
from echelons.guards.budget import UNITS, Budget, store_amounts

BUDGET_PROPERTY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "tokens": {"type": "integer", "minimum": 1},
        "money": {"type": "string"},
        "calls": {"type": "integer", "minimum": 1},
        "tool_calls": {"type": "integer", "minimum": 1},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
    },
}


def _check_budget(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if not given:
        return None
    try:
        if unknown := given.keys() - set(UNITS):
            raise ValueError(f"there is no unit {min(unknown)!r}, but {', '.join(UNITS)}")
        return store_amounts(Budget(**given).amounts)
    except InvalidSetting as error:
        raise ValueError(f"{error.setting}: {error.why}") from error


GivenBudget: TypeAlias = Annotated[dict[str, Any] | None, AfterValidator(_check_budget)]
"""What a call grants, by unit; validated, it is what is stored of it."""
