"""Errors of requests that are not passed on, of routing, and of stops and pauses."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError, escape_braces


class DelegationError(EchelonsError):
    """A request is not passed on.

    Attributes:
        code: Code that the reason of the response begins with.
    """

    code = "refused"

    @property
    def reason(self) -> str:
        """The reason in the response to the superior."""
        return f"{self.code}: {self}"


class SpawnRefused(DelegationError):
    """A subordinate cannot be made at run time.

    Attributes:
        why: The reason against it, with the limit and what to do.
    """

    code = "spawn"

    def __init__(self, why: str) -> None:
        super().__init__(
            "{why}",
            why=why,
        )


class RoutingError(EchelonsError):
    """A task cannot be routed as requested."""


class ControlError(EchelonsError):
    """An order cannot be carried out; nothing was changed."""


class UnknownPath(ControlError, RoutingError):
    """A name or path leads to no agent of the tree.

    Attributes:
        path: The refused value.
        known: The names or paths of the tree.
    """

    code = "unknown_path"

    def __init__(self, path: str, known: Sequence[str]) -> None:
        more = f" and {len(known) - 20} more" if len(known) > 20 else ""
        listed = escape_braces(", ".join(known[:20]) or "none")
        super().__init__(
            f"no agent {{path:short}} in the tree; there are: {listed}{more}",
            path=path,
            known=tuple(known),
        )


def too_wide(wanted: int, begun: int, limit: int) -> DelegationError:
    """Return the error of a message with too many calls side by side."""
    more = "1 more is" if wanted == 1 else "{wanted} more are"
    return DelegationError(
        f"{{begun}} of {{limit}} calls side by side in one message, and {more} wanted; make the "
        "others in a later message",
        code="width",
        wanted=wanted,
        begun=begun,
        limit=limit,
    )


def matcher_failed(matcher: str, why: str) -> RoutingError:
    """Return the error of a matcher that raised, or returned an invalid match."""
    return RoutingError(
        "the matcher {matcher} failed: {why}; route with another one, such as LexicalMatcher",
        code="matcher_failed",
        matcher=matcher,
        why=why,
    )


def deriver_failed(agent: str, why: str) -> RoutingError:
    """Return the error of capabilities that could not be derived."""
    return RoutingError(
        "what {agent!r} can do could not be derived: {why}; derive it in another way, or declare "
        "its capabilities",
        code="deriver_failed",
        agent=agent,
        why=why,
    )


def message_refused(path: str, why: str) -> ControlError:
    """Return the error of a message to an agent that cannot read it."""
    return ControlError(
        "{path:short} was sent no message: {why}. Nothing was stored",
        code="message_refused",
        path=path,
        why=why,
    )


def not_paused(path: str, paused: Sequence[str]) -> ControlError:
    """Return the error of a path where there is no pause to lift."""
    return ControlError(
        "nothing is paused at {path:short} or below it; paused are: {paused}",
        code="not_paused",
        path=path,
        paused=tuple(paused),
    )
