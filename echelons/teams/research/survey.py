"""A survey of a folder: its documents, their topics, and the files that were not read.

`team` builds its agents from this; the CLI prints `Survey.report`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from echelons.teams.research.corpus import (
    Document,
    DocumentFolder,
    SkippedFile,
    build_folder_tree,
    read_documents,
)
from echelons.teams.research.outline import parse_outline
from echelons.teams.research.word_weights import (
    Vocabulary,
    WordProfile,
    build_profile,
    count_documents,
    select_telling_words,
)

MOST_LEVELS: Final = 24
"""Most levels of folders; a tree of agents may have 32 levels, some of them above ours."""


@dataclass(frozen=True, slots=True)
class SurveyedDocument:
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
    words: WordProfile = field(repr=False)


@dataclass(frozen=True, slots=True)
class Survey:
    """The documents of a folder that was read.

    Attributes:
        root: The folder.
        tree: Its documents in their folders.
        surveyed: Each document with its topics, by path.
        vocabulary: In how many documents each word occurs.
        skipped: The files that were not read, and why.
    """

    root: Path
    tree: DocumentFolder
    surveyed: Mapping[str, SurveyedDocument]
    vocabulary: Vocabulary
    skipped: tuple[SkippedFile, ...]

    def report(self) -> str:
        """Return as text how many files were read, and each skipped one with the reason."""
        lines = [f"{self.root}: {len(self.surveyed)} read, {len(self.skipped)} skipped"]
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
    documents, skipped = read_documents(root)
    outlines = {each.path: parse_outline(each.path, each.text) for each in documents}
    profiles = {
        each.path: build_profile(
            outlines[each.path].title_and_path,
            (heading.text for heading in outlines[each.path].headings),
            each.text,
        )
        for each in documents
    }
    known = count_documents(profiles.values())
    surveyed = {}
    for each in documents:
        outline, words = outlines[each.path], profiles[each.path]
        headings = tuple((heading.level, heading.text) for heading in outline.headings)
        telling = select_telling_words(words, known)
        surveyed[each.path] = SurveyedDocument(each, outline.title, headings, telling, words)
    return Survey(root, build_folder_tree(documents, MOST_LEVELS), surveyed, known, tuple(skipped))
