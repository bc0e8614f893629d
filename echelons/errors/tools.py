"""Errors of the safe tools: what a fetch, a calculation, a text or a program is refused for."""

from __future__ import annotations

from echelons.errors.base import EchelonsError


class ToolRefusal(EchelonsError):
    """A safe tool refuses its arguments, or cannot do what they ask.

    The tools answer a model with its name and message; functions that they are made of raise it.
    """


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
