"""Errors of the safe tools: what a fetch, a calculation, a text or a program is refused for."""

from __future__ import annotations

from collections.abc import Sequence

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

    why: str
    message = "{why}; the call may have happened"


class AddressRefused(ToolRefusal):
    """A URL is invalid, or leads to a host that may not be fetched.

    Attributes:
        url: The URL, that of a redirect included.
        why: What is wrong, and what to do.
    """

    url: str
    why: str
    message = "{url:short} is not fetched: {why}"


class ResponseTooLarge(ToolRefusal):
    """The body of a response is larger than allowed; what came of it is dropped.

    Attributes:
        url: The URL.
        limit: The most bytes.
    """

    url: str
    limit: int
    message = (
        "the response of {url:short} is larger than {limit} bytes, the limit; fetch a smaller "
        "page, or a part of this one"
    )


class FetchFailed(ToolRefusal):
    """A server cannot be reached, does not answer in time, or answers with no text.

    Attributes:
        url: The URL.
        why: What is wrong, and what to do.
    """

    url: str
    why: str
    message = "{url:short} cannot be fetched: {why}"


class InvalidExpression(ToolRefusal):
    """An expression is no arithmetic, or its result would be too large.

    Attributes:
        expression: The expression.
        why: What is wrong, and what is possible.
    """

    expression: str
    why: str
    message = "{expression:short} is not calculated: {why}"


class InvalidLines(ToolRefusal):
    """Lines of a text cannot be extracted or replaced.

    Attributes:
        why: What is wrong, and what is possible.
    """

    why: str
    message = "no lines: {why}"


class SearchFailed(ToolRefusal):
    """A provider of a search cannot be asked, or its answer makes no sense.

    Attributes:
        provider: Its name.
        why: What is wrong.
        wait: Seconds until it may be asked again; 0 if it does not say.
    """

    provider: str
    why: str
    wait: float = 0.0

    def _describe(self) -> str:
        wait = f"; ask again in {self.wait:g} s" if self.wait else ""
        return self._fill(f"{{provider}} cannot be asked: {{why}}{wait}")


class NothingFound(ToolRefusal):
    """No provider of a search has an answer.

    Attributes:
        query: What was searched for.
        reasons: Each provider with its reason.
    """

    query: str
    reasons: Sequence[tuple[str, str]]

    def _describe(self) -> str:
        asked = "; ".join(f"{name}: {why}" for name, why in self.reasons) or "there is no provider"
        return self._fill("nothing is found for {query:short}: ") + (
            f"{asked}; ask in other words, or later"
        )
