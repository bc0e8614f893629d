"""A survey of a folder: its documents, their topics, and the files that were not read.

`team` builds its agents from this; the CLI prints `Survey.report`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from echelons.teams.research.corpus import Document, Folder, Skipped, arrange, collect
from echelons.teams.research.outline import Outline, outline
from echelons.teams.research.word_weights import Profile, Vocabulary, profile, telling, vocabulary

LEVELS: Final = 24
"""Most levels of folders; a tree of agents may have 32 levels, some of them above ours."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A document and its topics.

    Attributes:
        document: The document.
        title: Its title.
        headings: The level and text of each heading, in order.
        capabilities: Its most telling words, with confidences.
        words: The counts of all its words.
    """

    document: Document
    title: str
    headings: tuple[tuple[int, str], ...]
    capabilities: Mapping[str, float]
    words: Profile = field(repr=False)


@dataclass(frozen=True, slots=True)
class Survey:
    """The documents of a folder that was read.

    Attributes:
        root: The folder.
        tree: Its documents in their folders.
        readings: Each document with its topics, by path.
        known: In how many documents each word occurs.
        skipped: The files that were not read, and why.
    """

    root: Path
    tree: Folder
    readings: Mapping[str, Reading]
    known: Vocabulary
    skipped: tuple[Skipped, ...]

    def report(self) -> str:
        """Return as text how many files were read, and each skipped one with the reason."""
        lines = [f"{self.root}: {len(self.readings)} read, {len(self.skipped)} skipped"]
        lines += [f"  {each.path}: {each.reason}" for each in self.skipped]
        return "\n".join(lines)


def survey(docs: Path | str) -> Survey:
    """Read a folder of documents.

    Hidden files and folders are ignored; other files that are not readable text are listed
    in `skipped`.

    Raises:
        FolderMissing: There is nothing at `docs`.
        NotAFolder: `docs` is a file.
        NothingToRead: There is no readable document in it.
    """
    root = Path(docs).expanduser()
    documents, skipped = collect(root)
    outlines = {each.path: outline(each.path, each.text) for each in documents}
    profiles = {
        each.path: profile(
            outlines[each.path].named,
            (heading.text for heading in outlines[each.path].headings),
            each.text,
        )
        for each in documents
    }
    known = vocabulary(profiles.values())
    readings = {
        each.path: _reading(each, outlines[each.path], profiles[each.path], known)
        for each in documents
    }
    return Survey(root, arrange(documents, LEVELS), readings, known, tuple(skipped))


def _reading(document: Document, parts: Outline, words: Profile, known: Vocabulary) -> Reading:
    headings = tuple((heading.level, heading.text) for heading in parts.headings)
    return Reading(document, parts.title, headings, telling(words, known), words)
