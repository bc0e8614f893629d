"""Errors of the safe tools: what a fetch, a calculation, a text or a program is refused for."""

from __future__ import annotations

from echelons.errors.base import EchelonsError


class ToolRefusal(EchelonsError):
    """A safe tool refuses its arguments, or cannot do what they ask.

    The tools answer a model with its name and message; functions that they are made of raise it.
    """


class CallCutShort(EchelonsError):
    """A call was given up before its outcome was known: it may have happened.

    A tool that raises it has its call treated like one that a crash cut short: a person is asked
    what came of it, unless it is idempotent, or changes nothing.

    Attributes:
        why: Why it was given up.
    """

    code = "call_cut_short"

    def __init__(self, why: str) -> None:
        super().__init__(
            "{why}; the call may have happened",
            why=why,
        )


def address_refused(url: str, why: str) -> ToolRefusal:
    """Return the refusal of a URL that is invalid, or may not be fetched."""
    return ToolRefusal(
        "{url:short} is not fetched: {why}",
        code="address_refused",
        url=url,
        why=why,
    )


def fetch_failed(url: str, why: str) -> ToolRefusal:
    """Return the error of a server that does not answer in time, or with no text."""
    return ToolRefusal(
        "{url:short} cannot be fetched: {why}",
        code="fetch_failed",
        url=url,
        why=why,
    )


def search_failed(provider: str, why: str, wait: float = 0.0) -> ToolRefusal:
    """Return the error of a provider of a search; `wait` is 0 if it does not say how long."""
    return ToolRefusal(
        f"{{provider}} cannot be asked: {{why}}{'; ask again in {wait:g} s' if wait else ''}",
        code="search_failed",
        provider=provider,
        why=why,
        wait=wait,
    )
