"""Exceptions as one line of text: for models and superiors, and for warnings.

`describe_error` takes any exception. `describe_failure` is for code of others that we can do
without (a matcher, embeddings, a model that derives): it raises again what is no failure.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from echelons.errors import EchelonsError
from echelons.text.sanitize import join_printable

LONGEST_ERROR: Final = 300
"""Characters of `describe_error`; logs and traces have the whole text."""
LONGEST_REASON: Final = 200
"""Characters of `describe_failure`."""
_LONGEST_ADDRESS = 100


def describe_error(error: BaseException) -> str:
    r"""Return an exception's type and the first line of its text, without a traceback.

    The line of a connection that failed ends with the address of the server.

    Examples:
        >>> describe_error(ValueError("no such city\nmore"))
        'ValueError: no such city'
    """
    first = next(iter(str(error).strip().splitlines()), "")
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    if address := _find_address(error):
        text = f"{_shorten_line(text, LONGEST_ERROR - len(address) - 3)} ({address})"
    return _shorten_line(text, LONGEST_ERROR)


def describe_failure(error: BaseException, own: type[EchelonsError]) -> str:
    """Return why someone else's code failed, in one line; `own` is our error for such failures.

    Raises:
        BaseException: `error` itself, if it is not a failure of that code: a cancellation, a
            signal of the surrounding graph, or another error of ours, such as a missing key.

    Examples:
        >>> from echelons.errors import MatcherFailed
        >>> describe_failure(ConnectionError("no route to host"), MatcherFailed)
        'ConnectionError: no route to host'
    """
    # LangGraph interrupts with exceptions. The domain does not import it, hence the name.
    signal = any(each.__name__ == "GraphBubbleUp" for each in type(error).__mro__)
    ours = isinstance(error, EchelonsError) and not isinstance(error, own)
    if signal or ours or not isinstance(error, Exception):
        raise error
    line = f"{type(error).__name__}: {join_printable(str(error)[: 2 * LONGEST_REASON])}"
    return _shorten_line(line.rstrip(), LONGEST_REASON)


def _find_address(error: BaseException) -> str:
    """Return the address of a request without a response, as HTTP clients attach it, or ''."""
    if getattr(error, "response", None) is not None:
        return ""
    try:
        url = urlsplit(str(error.request.url))  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError, ValueError):  # httpx raises the second for no request
        return ""
    # Neither a user's password nor a query, which may hold a key.
    server = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
    return server if url.netloc and len(server) <= _LONGEST_ADDRESS else ""


def _shorten_line(line: str, longest: int) -> str:
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
