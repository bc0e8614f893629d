"""Exceptions as text without secrets: one line for models and superiors, a traceback for logs.

`describe_error` takes any exception. `describe_failure` is for code of others that we can do
without (a matcher, embeddings, a model that derives): it raises again what is no failure.
"""

from __future__ import annotations

from traceback import TracebackException
from typing import Final
from urllib.parse import urlsplit

from echelons.errors import EchelonsError, get_error_name
from echelons.text.redaction import Redactor, apply_redactor, redact_secrets
from echelons.text.sanitize import join_printable

LONGEST_ERROR: Final = 300
"""Characters of `describe_error`; logs and traces have the whole text."""
TRACEBACK_BYTES: Final = 64 * 1024
"""Bytes of `format_traceback`, in UTF-8."""
LONGEST_REASON: Final = 200
"""Characters of `describe_failure`."""
_LONGEST_ADDRESS = 100
_LEFT_OUT = b"\n[the middle was left out]\n"


def describe_error(error: BaseException, redactor: Redactor = redact_secrets) -> str:
    r"""Return an exception's type and the first line of its text, without a traceback.

    The line of a connection that failed ends with the address of the server.
    """
    # Redacted before it is cut: half a secret looks like none.
    whole = apply_redactor(redactor, read_error_text(error)).strip()
    first = next(iter(whole.splitlines()), "")
    name = get_error_name(error)
    text = f"{name}: {first}" if first else name
    if address := apply_redactor(redactor, find_server(error)):
        text = f"{_shorten_line(text, LONGEST_ERROR - len(address) - 3)} ({address})"
    return _shorten_line(text, LONGEST_ERROR)


def read_error_text(error: BaseException) -> str:
    """Return the text of an exception, also of one that has none."""
    try:
        return str.__str__(str(error))
    except Exception:  # noqa: BLE001  code of others: its `__str__` may fail too
        return "its text cannot be read"


def format_traceback(error: BaseException, redactor: Redactor = redact_secrets) -> str:
    """Return an exception's traceback without the values of variables.

    It has the causes, the notes and the exceptions of a group. Of one longer than 64 KiB, the
    middle is left out.
    """
    try:
        whole = "".join(TracebackException.from_exception(error).format()).rstrip()
    except Exception:  # noqa: BLE001  code of others: the exception, or a cause, cannot be read
        whole = f"the traceback of {type(error).__name__} cannot be read"
    stored = apply_redactor(redactor, whole).encode()
    if len(stored) > TRACEBACK_BYTES:
        end = TRACEBACK_BYTES // 4 * 3 - len(_LEFT_OUT)
        stored = stored[: TRACEBACK_BYTES // 4] + _LEFT_OUT + stored[-end:]
    return stored.decode(errors="ignore")


def describe_failure(error: BaseException, code: str, redactor: Redactor = redact_secrets) -> str:
    """Return why someone else's code failed, in one line; `code` is that of our error for it.

    Raises:
        BaseException: `error` itself, if it is not a failure of that code: a cancellation, a
            signal of the surrounding graph, or another error of ours, such as a missing key.
    """
    # LangGraph interrupts with exceptions. The domain does not import it, hence the name.
    signal = any(cls.__name__ == "GraphBubbleUp" for cls in type(error).__mro__)
    ours = isinstance(error, EchelonsError) and error.code != code
    if signal or ours or not isinstance(error, Exception):
        raise error
    text = apply_redactor(redactor, read_error_text(error))
    line = f"{get_error_name(error)}: {join_printable(text[: 2 * LONGEST_REASON])}"
    return _shorten_line(line.rstrip(), LONGEST_REASON)


def find_server(error: BaseException) -> str:
    """Return the address of the server that gave no response to a request; else an empty text.

    HTTP clients attach the request to their exceptions, and seldom name it in the text.
    """
    try:
        if getattr(error, "response", None) is not None:
            return ""
        url = urlsplit(str(error.request.url))  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001  most have none, httpx raises if there is none, others anything
        return ""
    # Neither a user's password nor a query, which may hold a key.
    server = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
    return server if url.netloc and len(server) <= _LONGEST_ADDRESS else ""


def note_server(error: BaseException, server: str) -> None:
    """Note with an exception the address of a request, which clients leave out of its text."""
    error.add_note(f"the request was for {server}")


def _shorten_line(line: str, longest: int) -> str:
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
