"""`NameTheme`: the names for people that agents of a tree are given."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Final

from echelons.errors import ConfigurationError
from echelons.text.input_limits import shorten_repr
from echelons.tree.names import RESERVED_NAMES

THEMES: Final = ("birds", "islands", "minerals", "rivers", "stars", "trees")
"""The themes that are part of the package."""
ALIAS_PATTERN = re.compile(r"[A-Za-z][A-Za-z' -]{0,31}")
MIN_NAMES, MAX_NAMES = 64, 10_000
MAX_FILE_SIZE = 1 << 20  # bytes
RESERVED_ALIASES = RESERVED_NAMES | {"superior", "human", "user", "the user", "siblings", "root"}
"""Words by which models, people and Echelons itself name others; no name is one of them."""


@dataclass(frozen=True, slots=True)
class NameTheme:
    """Names for people, of which the agents of a tree that were spawned get one each.

    Args:
        name: Its subject or its file, for errors.
        names: 64 to 10,000 names, none twice. Each is a letter, and up to 31 letters, spaces,
            hyphens or apostrophes.

    Raises:
        ConfigurationError: A name is invalid, or there are too few or too many.

    Examples:
        >>> load_theme("birds").names[:2]
        ('Avocet', 'Bittern')
    """

    name: str
    names: tuple[str, ...]
    digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = tuple(self.names)
        seen: dict[str, int] = {}
        for line, alias in enumerate(names, start=1):
            if why := _find_fault(alias, seen):
                raise _invalid_theme(self.name, line, why)
            seen[alias.casefold()] = line
        if not MIN_NAMES <= len(names) <= MAX_NAMES:
            why = f"there are {len(names)} names; a theme has {MIN_NAMES} to {MAX_NAMES}"
            raise _invalid_theme(self.name, len(names), why)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "digest", sha256("\n".join(names).encode()).hexdigest()[:16])


def _find_fault(name: object, seen: dict[str, int]) -> str:
    """Return what is wrong with a name; empty if nothing is."""
    if not isinstance(name, str) or not ALIAS_PATTERN.fullmatch(name) or name != name.strip():
        return (
            f"{shorten_repr(name)} is no name: a name is a letter and up to 31 letters, spaces, "
            "hyphens or apostrophes"
        )
    if name.casefold() in RESERVED_ALIASES:
        return f"{name!r} has another meaning, so no agent is called so"
    if name.casefold() in seen:
        return f"{name!r} stands in line {seen[name.casefold()]} already"
    return ""


def load_theme(theme: str | PathLike[str]) -> NameTheme:
    """Return one of `THEMES` by its name, or the names of a file.

    Args:
        theme: The name, or the path of a UTF-8 file with a name on each line.

    Raises:
        ConfigurationError: There is neither, or the file is none of names.
    """
    if isinstance(theme, str) and theme in THEMES:
        return _load_shipped(theme)
    try:
        path = Path(theme)
        if not path.is_file():
            raise _invalid_theme(str(path), 0, f"it is no file, and none of {', '.join(THEMES)}")
        with path.open("rb") as file:
            stored = file.read(MAX_FILE_SIZE + 1)
    except (OSError, TypeError, ValueError) as error:
        raise _invalid_theme(shorten_repr(theme), 0, str(error)) from error
    if len(stored) > MAX_FILE_SIZE:
        raise _invalid_theme(str(path), 0, f"it is larger than {MAX_FILE_SIZE} bytes")
    return NameTheme(str(path), _split_lines(str(path), stored))


def choose_theme(
    root_theme: NameTheme | None, session_theme: NameTheme | None, seed: str
) -> NameTheme:
    """Return the theme of the root, else that of the session, else one drawn by a seed."""
    if theme := root_theme or session_theme:
        return theme
    drawn = int.from_bytes(sha256(f"theme/{seed}".encode()).digest()[:8])
    return _load_shipped(THEMES[drawn % len(THEMES)])


def check_theme(theme: object) -> NameTheme | None:
    """Return a theme, the name of one, or a file of names as a theme; `None` for nothing."""
    if theme is None or isinstance(theme, NameTheme):
        return theme
    if isinstance(theme, (str, PathLike)):
        return load_theme(theme)
    why = f"pass a NameTheme, the path of a file, or one of {', '.join(THEMES)}"
    raise _invalid_theme(shorten_repr(theme), 0, why)


@cache
def _load_shipped(name: str) -> NameTheme:
    text = files("echelons.tree").joinpath("themes", f"{name}.txt").read_bytes()
    return NameTheme(name, _split_lines(name, text))


def _split_lines(name: str, stored: bytes) -> tuple[str, ...]:
    lines = stored.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    decoded: list[str] = []
    for number, line in enumerate(lines, start=1):
        try:
            decoded.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise _invalid_theme(name, number, f"it is no UTF-8 ({error.reason})") from error
    return tuple(decoded)


def _invalid_theme(theme: str, line: int, why: str) -> ConfigurationError:
    return ConfigurationError(
        "theme {theme!r}, line {line}: {why}. A theme is a UTF-8 file with a name on each line, "
        "or one that Echelons has",
        code="invalid_theme",
        theme=theme,
        line=line,
        why=why,
    )
