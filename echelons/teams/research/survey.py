"""What a folder holds: its documents, what each is about, and what could not be read.

``team`` builds its agents from this; a person reads ``Survey.report``.
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
"""Folders above each other; a tree of agents may have 32 levels, some of them above us."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A document and what it is about.

    Attributes:
        document: The document.
        title: Its title.
        headings: Its headings, each with its level, in their order.
        capabilities: The words that tell what it is about, with confidences.
        words: All its words.
    """

    document: Document
    title: str
    headings: tuple[tuple[int, str], ...]
    capabilities: Mapping[str, float]
    words: Profile = field(repr=False)


@dataclass(frozen=True, slots=True)
class Survey:
    """A folder, read.

    Attributes:
        root: The folder.
        tree: Its documents in their folders.
        readings: What each document is about, by its path.
        known: In how many documents each word stands.
        skipped: What was not read, and why.
    """

    root: Path
    tree: Folder
    readings: Mapping[str, Reading]
    known: Vocabulary
    skipped: tuple[Skipped, ...]

    def report(self) -> str:
        """Return for people how much was read, and each thing that was not, with why."""
        lines = [f"{self.root}: {len(self.readings)} read, {len(self.skipped)} skipped"]
        lines += [f"  {each.path}: {each.reason}" for each in self.skipped]
        return "\n".join(lines)


def survey(docs: Path | str) -> Survey:
    """Read a folder of documents.

    Hidden files and folders are passed over; whatever else is no readable text is listed in
    ``skipped``.

    Raises:
        FolderMissing: There is nothing at ``docs``.
        NotAFolder: ``docs`` is a file.
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
