"""What a path in a workspace may be: relative, portable, and not to be taken for another one.

These are rules about text. That no link is followed where a path leads is up to `files`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from echelons.errors import WorkspaceError
from echelons.text.input_limits import read_text, shorten_repr

MAX_PATH_BYTES: Final = 4096
"""Bytes of UTF-8 that a path may have."""
MAX_PART_BYTES: Final = 255
"""Bytes of UTF-8 that a name in a path may have."""
MAX_DEPTH: Final = 64
"""Names that a path may have."""
TEMPORARY_PREFIX: Final = ".echelons-"
"""How the names of files begin that are being written."""

_RESERVED_NAMES: Final = frozenset(
    {
        *("con", "prn", "aux", "nul", "conin$", "conout$", "clock$"),
        *(f"{port}{number}" for port in ("com", "lpt") for number in "0123456789"),
    }
)
"""Devices of Windows, with any extension."""
_LOOKALIKES: Final = frozenset("\u2044\u2215\u2216\u29f8\u29f9\u29f5\u2236\ua789\u0589\u05c3\u1735")
"""Characters like a slash, a backslash or a colon that are no compatibility forms of it."""
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control and format characters (the bidirectional ones too), surrogates, and unassigned ones."""
_CONFUSED_SCRIPTS: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"})
"""Scripts with letters that look like those of another one."""


def check_path(given: object) -> str:
    """Return a path in a workspace as it is kept: its names in Unicode's form NFC, between slashes.

    Raises:
        WorkspaceError: It is no relative path, has other parts than names, or has names that a file
            system may read differently, that look like others, or that hold no work: `.git`.

    Examples:
        >>> check_path("docs/plan.md")
        'docs/plan.md'
        >>> check_path("../plan.md")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        echelons.errors.WorkspaceError: '../plan.md' is no path of a workspace: ...
    """
    text = read_text(given)
    if text is None:
        raise _invalid_path(shorten_repr(given), "it is no text")
    if why := next(_find_faults(text), ""):
        raise _invalid_path(shorten_repr(text), why)
    return unicodedata.normalize("NFC", text)


def _find_faults(text: str) -> Iterator[str]:
    """Yield what is wrong with a path; only the first is sure, as the later rely on the earlier."""
    if not text:
        yield "it is empty"
    # A character has a byte at least; more are not worth a look.
    if len(text) > MAX_PATH_BYTES:
        yield f"it has more than {MAX_PATH_BYTES} bytes"
    hidden = (each for each in text if unicodedata.category(each) in _REFUSED_CATEGORIES)
    yield from (f"it holds U+{ord(each):04X}, a character that cannot be seen" for each in hidden)
    if text.startswith("/"):
        yield "it is absolute"
    if "\\" in text or ":" in text:
        yield "it holds a backslash or a colon"
    normal = unicodedata.normalize("NFC", text)
    if unicodedata.normalize("NFKC", text) != normal or not _LOOKALIKES.isdisjoint(normal):
        yield "it holds a character that looks like another one"
    if len(normal.encode()) > MAX_PATH_BYTES:
        yield f"it has more than {MAX_PATH_BYTES} bytes"
    names = normal.split("/")
    if len(names) > MAX_DEPTH:
        yield f"it has more than {MAX_DEPTH} names"
    for name in names:
        yield from _find_faults_of_name(name)


def _find_faults_of_name(name: str) -> Iterator[str]:
    if name in ("", ".", ".."):
        yield f"{name!r} is no name of a file"
    if len(name.encode()) > MAX_PART_BYTES:
        yield f"one of its names has more than {MAX_PART_BYTES} bytes"
    if name.strip(" ") != name or name.startswith("~") or name.endswith("."):
        yield "a name begins with a space or a tilde, or ends with a space or a dot"
    lower = name.casefold()
    if lower.partition(".")[0].rstrip(" ") in _RESERVED_NAMES:
        yield f"{name!r} is the name of a device on Windows"
    # Git runs what is in there, and `git~1` is its short name on Windows.
    if lower in (".git", "git~1"):
        yield f"{name!r} belongs to Git"
    if lower.startswith(TEMPORARY_PREFIX):
        yield f"{name!r} is a name for files that are being written"
    if not name.isascii() and _mixes_scripts(name):
        yield "a word mixes the letters of scripts that look alike"


def _mixes_scripts(name: str) -> bool:
    """Return whether a word of a name mixes scripts whose letters look alike."""
    words = (word for is_word, word in groupby(name, str.isalpha) if is_word)
    return any(
        len({unicodedata.name(each, "").split(" ")[0] for each in word} & _CONFUSED_SCRIPTS) > 1
        for word in words
    )


def _invalid_path(path: str, why: str) -> WorkspaceError:
    return WorkspaceError(
        "{path} is no path of a workspace: {why}; name a file like 'docs/plan.md'",
        code="invalid_path",
        path=path,
        why=why,
    )
