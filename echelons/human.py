"""`Human`: a person as a subordinate, whose turn is a question in the inbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from echelons.capabilities.capability import Capability, check_capabilities
from echelons.errors import invalid_field
from echelons.text.input_limits import read_text, refuse_unreadable
from echelons.tree.members import Member, create_empty_capabilities
from echelons.tree.names import check_name

MAX_TIMEOUT = 366 * 24 * 3600
"""Longest timeout of a person, in seconds: a year."""
TIMEOUT_TYPE = f"float (seconds, up to {MAX_TIMEOUT})"
"""What a timeout may be."""


@dataclass(frozen=True, slots=True, eq=False)
class Human:
    """A person who works for an agent, like any other subordinate.

    A request to it is a `Question` in the inbox, with the task as its text and the human's name as
    its `addressee`. The answer is a text, the result, or an object with a `status`, as in a report:
    `{"status": "unable", "reason": "on holiday"}`.

    Args:
        name: As of an `Agent`; unique in its tree.
        description: The purpose of the person, in a sentence. Its superior's model reads it.
        capabilities: As of an `Agent`.
        timeout: Seconds in which the person must answer, a year at most; `None` for any time, but
            for that of a routed task (`DelegationPolicy.request_timeout`). The other timeouts of
            a policy do not count for people.

    Raises:
        ConfigurationError: An argument is invalid; the subclass says which.

    Examples:
        >>> from echelons import Agent
        >>> anna = Human("anna", "Approves what is expensive", timeout=3600)
        >>> print(Agent("head", "Buys things", subordinates=[anna]).draw())
        head: Buys things
        └── anna: Approves what is expensive
    """

    name: str
    description: str = ""
    capabilities: Mapping[str, float] = field(
        default_factory=create_empty_capabilities, kw_only=True
    )
    timeout: float | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:
        # The arguments accepted are wider than the types of the fields.
        def __init__(
            self,
            name: str,
            description: str = "",
            *,
            capabilities: Mapping[str, float] | Mapping[str, Capability | float] = ...,
            timeout: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        keep = object.__setattr__
        keep(self, "name", check_name(self.name))
        description = read_text(self.description)
        if description is None:
            raise invalid_field(self.name, "description", self.description, "str")
        keep(self, "description", description)
        keep(self, "capabilities", check_capabilities(self.name, self.capabilities))
        with refuse_unreadable(
            lambda _: invalid_field(self.name, "timeout", self.timeout, TIMEOUT_TYPE)
        ):
            if not _is_timeout(self.timeout):
                raise invalid_field(self.name, "timeout", self.timeout, TIMEOUT_TYPE)

    @property
    def subordinates(self) -> tuple[Member, ...]:
        """Always empty: those that a person asks are not part of the tree."""
        return ()


def _is_timeout(value: Any) -> bool:
    if value is None:
        return True
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and isfinite(value) and 0 < value <= MAX_TIMEOUT
