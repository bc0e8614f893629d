"""A survey of a folder: its documents, their topics, and the files that were not read.

`team` builds its agents from this; the CLI prints `Survey.report`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from echelons.checkpoints.default_path import expand_home
from echelons.teams.research.corpus import (
    Document,
    DocumentFolder,
    ProgressTracker,
    SkippedFile,
    build_folder_tree,
    read_documents,
    track_silently,
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
FIRST_NAMES: Final = 3
"""Skipped files of a kind that a report names."""

# The rest of a reason: the size of a file, a remedy.
_REASON_DETAIL = re.compile(r": \d.*|;.*")


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
        """Return a line: how many files were read, how many were not, why, and the first names."""
        counts = f"{self.root}: {len(self.surveyed)} read, {len(self.skipped)} skipped"
        return "; ".join([counts, *self._describe_skipped()])

    def _describe_skipped(self) -> Iterator[str]:
        paths: dict[str, list[str]] = {}
        for each in self.skipped:
            paths.setdefault(_REASON_DETAIL.sub("", each.reason), []).append(each.path)
        for reason, found in sorted(paths.items(), key=lambda each: -len(each[1])):
            more = ", …" if len(found) > FIRST_NAMES else ""
            yield f"{reason}: {len(found)} ({', '.join(found[:FIRST_NAMES])}{more})"


def survey(docs: Path | str, track: ProgressTracker = track_silently) -> Survey:
    """Read a folder of documents.

    Hidden files and folders are ignored; other files that are not readable text are listed
    in `skipped`.

    Args:
        docs: The folder.
        track: Shows the progress; thousands of files take some seconds.

    Raises:
        TeamError: There is nothing at `docs`; `docs` is a file; there is no readable document in
            it.
    """
    root = expand_home(Path(docs))
    documents, skipped = read_documents(root, track)
    outlines = {each.path: parse_outline(each.path, each.text) for each in documents}
    profiles = {
        each.path: build_profile(
            outlines[each.path].title_and_path,
            (heading.text for heading in outlines[each.path].headings),
            each.text,
        )
        for each in track(documents, description="Counting words")
    }
    known = count_documents(profiles.values())
    surveyed = {}
    for each in track(documents, description="Choosing words"):
        outline, words = outlines[each.path], profiles[each.path]
        headings = tuple((heading.level, heading.text) for heading in outline.headings)
        telling = select_telling_words(words, known)
        surveyed[each.path] = SurveyedDocument(each, outline.title, headings, telling, words)
    return Survey(root, build_folder_tree(documents, MOST_LEVELS), surveyed, known, tuple(skipped))
