"""Names of agents, made from the paths of their folders and documents. `team` calls this.

A stored run is resumed by the names of its agents, so a name depends on its own path alone,
not on other files in the folder and not on the process.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from echelons.text.stemming import remove_accents
from echelons.tree.names import NAME_PATTERN, RESERVED_NAMES

ROOT_NAME: Final = "research"
"""Name of the root agent."""
LONGEST_AGENT_NAME: Final = 64

_SUFFIXES: Final = ("md", "markdown", "mdx", "rst", "txt", "text")
_SUFFIX: Final = re.compile(rf"_({'|'.join(_SUFFIXES)})$")
_LETTERLESS_PREFIX: Final = "n_"
_HASHED: Final = re.compile(r"-[0-9a-f]{8}$")


def build_agent_name(path: str) -> str:
    """Return the name of the agent for a path; different paths have different names.

    Slashes become `__`, and characters that a name must not contain become `_`. If the path
    cannot be read back from the name, eight hexadecimal digits of its SHA-256 follow.

    Examples:
        >>> build_agent_name("guides/circuit-breakers.md")
        'guides__circuit-breakers_md'
        >>> build_agent_name("guides/Überblick (neu).md")
        'guides__Uberblick_neu_md-3ea20613'
    """
    parts = (
        re.sub(r"[^A-Za-z0-9-]+", "_", remove_accents(part)).strip("_-") for part in path.split("/")
    )
    plain = "__".join(part for part in parts if part) or "document"
    name = plain if plain[0].isalpha() else _LETTERLESS_PREFIX + plain
    taken = name == ROOT_NAME or name in RESERVED_NAMES or _HASHED.search(name)
    if _read_path(name) == path and not taken and NAME_PATTERN.fullmatch(name):
        return name
    digest = hashlib.sha256(path.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_AGENT_NAME - 9]}-{digest}"


def _read_path(name: str) -> str:
    """Return the path that a name without a digest stands for."""
    lettered = name.removeprefix(_LETTERLESS_PREFIX)
    plain = name if lettered[:1].isalpha() else lettered
    return _SUFFIX.sub(r".\1", plain).replace("__", "/")
