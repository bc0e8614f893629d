"""How an exception reads to a model or a superior: its kind and first line, no traceback."""

from __future__ import annotations

LONGEST = 300
"""Characters of an error's text that go up; the whole is in the logs and traces."""


def describe(error: BaseException) -> str:
    r"""Return one line about an error.

    Examples:
        >>> describe(ValueError("no such city\nmore"))
        'ValueError: no such city'
    """
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else ""
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
